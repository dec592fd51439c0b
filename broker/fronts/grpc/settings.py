"""Settings: what a client says of itself in its telemetry, and what the broker answers."""

from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.failures import CallFailed, Failure
from lockstep.broker.fronts.grpc.sessions import Session
from lockstep.broker.fronts.grpc.translate import duration_ms, enum_name, set_duration
from lockstep.broker.fronts.grpc.validation import check_group, check_topic
from lockstep.protocol.bodies.subscription_group import RETRY_STEPS_MS, GroupRetryPolicy
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import GrpcStatus

__all__ = ["answer_settings", "take_settings"]

_CONSUMERS: Final = (pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER)
_UNKNOWN: Final = "process client telemetryCommand failed. "
_SEND_ATTEMPTS: Final = 3
_SEND_BACKOFF_MS: Final = (10, 1000, 2.0)  # first, longest, factor
_RECEIVED_AT_ONCE: Final = 32
_LONG_POLL_MS: Final = 20_000
_LITE_SUBSCRIPTIONS: Final = 2000
_LITE_TOPIC_CHARACTERS: Final = 64


def take_settings(session: Session, settings: pb.Settings) -> None:
    """Note what a client says. Raises CallFailed, with the texts of RocketMQ's proxy."""
    kind = settings.WhichOneof("pub_sub")
    if kind is None:
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, "there is no publishing or subscription data in settings")
    try:
        if kind == "publishing":
            topics = [check_topic(topic) for topic in settings.publishing.topics]
            session.topics, session.group = tuple(dict.fromkeys(topics)), ""
        else:
            if settings.client_type not in _CONSUMERS:
                name = enum_name(pb.ClientType, settings.client_type)
                raise CallFailed(GrpcStatus.INTERNAL, f"{_UNKNOWN}Client type is not consumer, type: {name}")
            session.group, session.topics = check_group(settings.subscription.group), ()
    except Failure as why:
        raise CallFailed(GrpcStatus.INVALID_ARGUMENT, _UNKNOWN + why.text) from None
    session.client_type = settings.client_type
    session.request_timeout_ms = duration_ms(settings.request_timeout)


def answer_settings(broker: Broker, session: Session, settings: pb.Settings, now_ms: int) -> pb.Settings:
    """The client's settings, with what the broker decides."""
    answer = pb.Settings()
    answer.CopyFrom(settings)
    answer.metric.on = False
    if answer.WhichOneof("pub_sub") == "publishing":
        answer.publishing.max_body_size = broker.config.max_message_bytes
        answer.publishing.validate_message_type = True
        answer.backoff_policy.max_attempts = _SEND_ATTEMPTS
        first_ms, longest_ms, factor = _SEND_BACKOFF_MS
        backoff = answer.backoff_policy.exponential_backoff
        set_duration(backoff.initial, first_ms)
        set_duration(backoff.max, longest_ms)
        backoff.multiplier = factor
        return answer
    group = broker.catalog.groups.get(session.group)
    retries_max = broker.config.retry_max_times if group is None else group.retry_max_times
    answer.backoff_policy.max_attempts = retries_max + 1
    _set_backoff(answer.backoff_policy, (None if group is None else group.retry_policy) or GroupRetryPolicy())
    subscription = answer.subscription
    # Whether messages come in order is the group's, whatever the client wishes.
    subscription.fifo = group is not None and bool(group.consume_message_orderly)
    subscription.receive_batch_size = _RECEIVED_AT_ONCE
    set_duration(subscription.long_polling_timeout, _LONG_POLL_MS)
    subscription.lite_subscription_quota = _LITE_SUBSCRIPTIONS
    subscription.max_lite_topic_size = _LITE_TOPIC_CHARACTERS
    return answer


def _set_backoff(answer: pb.RetryPolicy, policy: GroupRetryPolicy) -> None:
    """Whatever the client wishes, the group's waits count."""
    if policy.is_exponential:
        answer.ClearField("exponential_backoff")
        backoff = answer.exponential_backoff
        set_duration(backoff.initial, policy.initial_ms)
        set_duration(backoff.max, policy.max_ms)
        backoff.multiplier = policy.multiplier
        return
    answer.ClearField("customized_backoff")
    for wait_ms in policy.steps_ms or RETRY_STEPS_MS:
        set_duration(answer.customized_backoff.next.add(), wait_ms)
