"""Which messages a group wants: the filter that comes with a read, or the one that its heartbeats registered."""

from functools import lru_cache
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.filters import Wanted, compiled
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import FilterError, is_tag_type

__all__ = ["check_filters_by", "expressed", "subscribed"]

# Our limit: expressions are cached, and a frame may have 16 MiB.
_EXPRESSION_LENGTH_MAX: Final = 32_767


def expressed(broker: Broker, topic: str, expression_type: str | None, expression: str | None) -> Wanted:
    """What matches an expression that comes with a read, as pull consumers send it. Raises Refused."""
    if expression and len(expression) > _EXPRESSION_LENGTH_MAX:
        remark = f"the expression has over {_EXPRESSION_LENGTH_MAX} characters, more than the broker keeps"
        raise Refused(Reason.INVALID_FILTER, remark)
    try:
        if is_tag_type(expression_type):
            return _by_tags(topic, expression)
        if not expression:
            raise FilterError(f"an expression of type {short_text(expression_type)} must not be empty")
        check_filters_by(broker.config, expression_type)
        passes = compiled(expression_type or "", expression)
        return Wanted(SubscriptionData(topic, expression), passes)
    except FilterError as error:
        raise Refused(Reason.INVALID_FILTER, str(error)) from None


def subscribed(broker: Broker, group: SubscriptionGroupConfig, topic: str, sub_version: int) -> Wanted:
    """What a group subscribes to.

    Args:
        sub_version: Of the subscription that the reader has.

    Raises:
        Refused: The group does not subscribe to the topic, or not yet as the reader does.
    """
    subscription = _subscription(broker, group, topic, sub_version)
    if is_tag_type(subscription.expression_type):
        return Wanted(subscription)
    # Check 5: SQL92 needs the setting enablePropertyFilter.
    check_filters_by(broker.config, subscription.expression_type)
    known = broker.messages.filters.find(group.group_name, topic)
    if known is None:
        remark = f"the expression of topic {topic!r} is invalid: {short_text(subscription.sub_string)}"
        raise Refused(Reason.NO_FILTER, remark)
    # The heartbeat with the newer subscription is still on its way; the client pulls again after a while.
    if known.sub_version < sub_version:
        remark = f"the filter here has version {known.sub_version}, the request {sub_version}"
        raise Refused(Reason.OLD_FILTER, remark)
    return Wanted(subscription, known.passes)


def _subscription(broker: Broker, config: SubscriptionGroupConfig, topic: str, sub_version: int) -> SubscriptionData:
    # Check 4 of wire.md 6.2.
    group = broker.members.consumers.groups.get(config.group_name)
    # A push consumer sends its heartbeat to this broker before its first pull, so this is the usual early error.
    if group is None:
        raise Refused(Reason.NO_SUBSCRIPTION, f"no consumer of group {config.group_name!r} is registered here")
    if not config.consume_broadcast_enable and group.message_model is MessageModel.BROADCASTING:
        raise Refused(Reason.NOT_PERMITTED, f"consumer group {config.group_name!r} may not consume by broadcast")
    subscription = group.subscriptions.get(topic)
    if subscription is None:
        remark = f"group {config.group_name!r} does not subscribe to topic {topic!r}"
        raise Refused(Reason.NO_SUBSCRIPTION, remark)
    if subscription.sub_version < sub_version:
        remark = f"the subscription here has version {subscription.sub_version}, the request {sub_version}"
        raise Refused(Reason.OLD_SUBSCRIPTION, remark)
    return subscription


def check_filters_by(config: BrokerConfig, expression_type: str | None) -> None:
    """Raises Refused unless `property_filter` is on, with RocketMQ's remark, which people search for."""
    if not config.property_filter:
        kind = short_text(expression_type).strip("'")
        raise Refused(Reason.INVALID, f"The broker does not support consumer to filter message by {kind}")


@lru_cache(maxsize=1024)
def _by_tags(topic: str, expression: str | None) -> Wanted:
    return Wanted(SubscriptionData.parse(topic, expression))
