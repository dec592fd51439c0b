"""The settings of a consumer group in a broker: whether and how it may consume, and its number of retries."""

from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_table, take
from lockstep.protocol.errors import BodyError, short_text

__all__ = ["BUILT_IN_GROUPS", "RETRY_STEPS_MS", "GroupRetryPolicy", "SubscriptionGroupConfig", "is_system_group"]

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
_CUSTOMIZED, _EXPONENTIAL = "CUSTOMIZED", "EXPONENTIAL"
_CONSUME_TIMEOUT_MINUTES: Final = 15
# Of an exponential policy, as in RocketMQ: 5 s, then twice as long each time, up to 2 h.
_INITIAL_MS: Final = 5_000
_MAX_MS: Final = 7_200_000
_MULTIPLIER: Final = 2
# RocketMQ 5's times between deliveries.
RETRY_STEPS_MS: Final = tuple(
    1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
# Of a customized policy.
_STEPS_MAX: Final = 64


class GroupRetryPolicy(NamedTuple):
    """How long a message waits before each retry (`groupRetryPolicy`, RocketMQ 5).

    Args:
        steps_ms: The waits, one by one. None: RETRY_STEPS_MS. Of a customized policy alone.
        initial_ms, max_ms, multiplier: Of an exponential policy alone.
    """

    is_exponential: bool = False
    steps_ms: tuple[int, ...] | None = None
    initial_ms: int = _INITIAL_MS
    max_ms: int = _MAX_MS
    multiplier: int = _MULTIPLIER

    def to_wire(self) -> dict[str, Any]:
        if self.is_exponential:
            exponential = {"initial": self.initial_ms, "max": self.max_ms, "multiplier": self.multiplier}
            return {"exponentialRetryPolicy": exponential, "type": _EXPONENTIAL}
        if self.steps_ms is None:
            return {"type": _CUSTOMIZED}
        return {"customizedRetryPolicy": {"next": list(self.steps_ms)}, "type": _CUSTOMIZED}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a retry policy")
        kind = take(wire, "type", str, _CUSTOMIZED)
        if kind == _EXPONENTIAL:
            one = as_object(wire.get("exponentialRetryPolicy") or {}, "an exponential retry policy")
            times = take(one, "initial", int, _INITIAL_MS), take(one, "max", int, _MAX_MS)
            return cls(True, None, *times, take(one, "multiplier", int, _MULTIPLIER))
        if kind != _CUSTOMIZED:
            raise BodyError(f"the type of a retry policy is {_CUSTOMIZED} or {_EXPONENTIAL}, not {short_text(kind)}")
        steps = as_object(wire.get("customizedRetryPolicy") or {}, "a customized retry policy").get("next")
        if steps is None:
            return cls()
        waits = as_list(steps, "next")
        if not 0 < len(waits) <= _STEPS_MAX:
            raise BodyError(f"a retry policy has 1 to {_STEPS_MAX} waits, not {len(waits)}")
        return cls(False, tuple(as_int(wait, "a wait of a retry policy") for wait in waits))


class SubscriptionGroupConfig(NamedTuple):
    """Request body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, and an entry of subscriptionGroup.json (wire.md 8.4).

    The last members are RocketMQ 5's. None: they are absent, as in RocketMQ 4.

    Args:
        consume_message_orderly: Clients of 5 get the group's messages in order.
        consume_timeout_minute: A consumer of 5 gives a message back that its listener has for so long.
        attributes: How an administrator changes those of the group, by name with its sign: RocketMQ has some for lite
            topics and priorities, which Lockstep does not have.
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
    retry_policy: GroupRetryPolicy | None = None
    consume_timeout_minute: int | None = None
    attributes: tuple[str, ...] = ()

    def without_defaults(self) -> Self:
        """Without members of RocketMQ 5 that say nothing else than 4 does: tools of 4 get the answers of 4."""
        policy, minutes = self.retry_policy, self.consume_timeout_minute
        return self._replace(
            consume_message_orderly=self.consume_message_orderly or None,
            retry_policy=None if policy == GroupRetryPolicy() else policy,
            consume_timeout_minute=None if minutes == _CONSUME_TIMEOUT_MINUTES else minutes,
        )

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
        if self.retry_policy is not None:
            wire["groupRetryPolicy"] = self.retry_policy.to_wire()
        if self.consume_timeout_minute is not None:
            wire["consumeTimeoutMinute"] = self.consume_timeout_minute
        return wire

    def to_wire_of_5(self) -> dict[str, Any]:
        """With all members, as RocketMQ 5 answers GET_SUBSCRIPTIONGROUP_CONFIG."""
        return {
            "attributes": {},
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": _CONSUME_TIMEOUT_MINUTES,
            "groupRetryPolicy": GroupRetryPolicy().to_wire(),
            "groupSysFlag": 0,
            **self.to_wire(),
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Read the settings. Missing members get RocketMQ's defaults."""
        wire = as_object(value, "a subscription group config")
        policy = wire.get("groupRetryPolicy")
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
            None if policy is None else GroupRetryPolicy.from_wire(policy),
            take(wire, "consumeTimeoutMinute", int, None),
            tuple(as_table(wire.get("attributes") or {}, "attributes")),
        )


def is_system_group(consumer_group: str) -> bool:
    """Whether brokers use the group themselves. Such a group exists even if groups are not created automatically."""
    return consumer_group.startswith(_SYSTEM_PREFIX)
