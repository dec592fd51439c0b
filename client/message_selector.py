"""Filters of a subscription: by tags, which a plain text means, or by SQL92 on properties."""

from collections.abc import Iterable
from typing import NamedTuple

from lockstep.client.errors import ConsumerError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.heartbeat import ClientConfigBody, SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import SQL92, TAG, FilterError, is_tag_type

__all__ = ["Expression", "MessageSelector", "check_at_brokers", "subscription_of"]


class MessageSelector(NamedTuple):
    """`MessageSelector.by_sql("size > 3 AND color IN ('red', 'blue')")`; the broker must have enablePropertyFilter."""

    expression_type: str
    expression: str

    @classmethod
    def by_sql(cls, expression: str) -> "MessageSelector":
        return cls(SQL92, expression)

    @classmethod
    def by_tag(cls, expression: str = "*") -> "MessageSelector":
        """ "*", "TagA", "TagA || TagB"; the same as the text alone."""
        return cls(TAG, expression)


Expression = str | MessageSelector


def subscription_of(topic: str, expression: Expression, version_ms: int = 0) -> SubscriptionData:
    """Make a subscription. The broker checks SQL, not this client. Raises FilterError."""
    selector = MessageSelector.by_tag(expression) if isinstance(expression, str) else expression
    if not isinstance(selector, MessageSelector) or not all(isinstance(part, str) for part in selector):
        raise FilterError(f"an expression must be a str or a MessageSelector, not {expression!r:.80}")
    expression_type, text = selector
    if is_tag_type(expression_type):
        return SubscriptionData.parse(topic, text, version_ms)
    if not text:
        raise FilterError(f"an expression of type {short_text(expression_type)} must not be empty")
    return SubscriptionData(topic, text, sub_version=version_ms, expression_type=expression_type)


async def check_at_brokers(instance: MQClientInstance, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """Ask one broker of each topic, before the first pull, whether it can filter by these expressions (wire.md 12.2).

    Every broker can filter by tags.

    Raises:
        ConsumerError: the broker cannot; with its reason.
        RemotingError: the broker did not answer.
    """
    for subscription in subscriptions:
        if is_tag_type(subscription.expression_type):
            continue
        address = instance.routes.any_address(subscription.topic, instance.runtime.rng)
        if address is None:
            continue
        body = ClientConfigBody(instance.client_id, group, subscription)
        reply = await instance.call_address(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
        if reply.code != ResponseCode.SUCCESS:
            topic, kind = subscription.topic, subscription.expression_type
            raise ConsumerError(f"the broker at {address} cannot filter topic {topic!r} by {kind}: {reply.remark}")
