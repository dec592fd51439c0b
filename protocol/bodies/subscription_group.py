"""The settings of a consumer group in a broker: whether and how it may consume, and its number of retries."""

from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies.codec import as_object, take

__all__ = ["BUILT_IN_GROUPS", "SubscriptionGroupConfig", "is_system_group"]

BUILT_IN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"


class SubscriptionGroupConfig(NamedTuple):
    """Request body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, and an entry of subscriptionGroup.json (wire.md 8.4).

    Args:
        consume_message_orderly: of brokers of RocketMQ 5 alone: clients of 5 get the group's messages in order.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }
        if self.consume_message_orderly is not None:
            wire["consumeMessageOrderly"] = self.consume_message_orderly
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Read the settings. Missing members get RocketMQ's defaults."""
        wire = as_object(value, "a subscription group config")
        return cls(
            take(wire, "groupName", str),
            take(wire, "consumeEnable", bool, True),
            take(wire, "consumeFromMinEnable", bool, True),
            take(wire, "consumeBroadcastEnable", bool, True),
            take(wire, "retryQueueNums", int, 1),
            take(wire, "retryMaxTimes", int, 16),
            take(wire, "brokerId", int, 0),
            take(wire, "whichBrokerWhenConsumeSlowly", int, 1),
            take(wire, "notifyConsumerIdsChangedEnable", bool, True),
            take(wire, "consumeMessageOrderly", bool, None),
        )


def is_system_group(consumer_group: str) -> bool:
    """Whether brokers use the group themselves. Such a group exists even if groups are not created automatically."""
    return consumer_group.startswith(_SYSTEM_PREFIX)
