"""Clients come and go: telemetry, heartbeats, the end of a client, and what it still holds."""

from functools import partial
from typing import Final

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.core import register as members
from lockstep.broker.core.ack import change_invisible
from lockstep.broker.core.pop import forsake
from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import CallFailed, Failure
from lockstep.broker.fronts.grpc.parts import CLIENT_ID, Parts, session_of
from lockstep.broker.fronts.grpc.renewals import Renewal
from lockstep.broker.fronts.grpc.sessions import Session, SessionActions
from lockstep.broker.fronts.grpc.settings import answer_settings, take_settings
from lockstep.broker.fronts.grpc.translate import enum_name
from lockstep.broker.fronts.grpc.validation import check_group, named
from lockstep.broker.messages.pop.port import Answered
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    MessageModel,
    SubscriptionData,
)
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.filter import FilterError
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import GrpcStatus
from lockstep.protocol.receipts import Receipt
from lockstep.protocol.versions import version_number
from lockstep.store import StoreFull

__all__ = [
    "client_gone",
    "expire_clients",
    "heartbeat",
    "notify_client_termination",
    "refuse_lite_topics",
    "renew",
    "take_command",
]

# What a push consumer leaves behind at its end comes to others after so long.
_LEFT_MS: Final = 1000
# A few milliseconds of work.
_RENEWED_AT_ONCE_MAX: Final = 200
# RocketMQ's proxy says so of a client whose version it cannot read.
_VERSION: Final = 513  # 5.5.0
_CLIENT_VERSION: Final = "x-mq-client-version"
_LANGUAGES: Final = {
    pb.JAVA: LanguageCode.JAVA,
    pb.CPP: LanguageCode.CPP,
    pb.DOT_NET: LanguageCode.DOTNET,
    pb.GOLANG: LanguageCode.GO,
    pb.RUST: LanguageCode.RUST,
    pb.PYTHON: LanguageCode.PYTHON,
    pb.PHP: LanguageCode.PHP,
    pb.RUBY: LanguageCode.RUBY,
}


# Telemetry -------------------------------------------------------------------------------------------------------


def take_command(parts: Parts, call: Call, command: pb.TelemetryCommand, now_ms: int) -> None:
    """A client says something. Settings are answered at once; its other commands answer what it was asked."""
    if command.WhichOneof("command") != "settings":
        session = parts.sessions.find(call.metadata[CLIENT_ID])
        if session is not None:
            parts.asked.answered(session, command)
        return
    _check_size(parts, call, command.settings, now_ms)
    session = _session_for(parts, call, command.settings)
    session.heard_ms = now_ms
    _enrol(parts, session, command.settings, now_ms)
    answer = pb.TelemetryCommand()
    answer.status.code, answer.status.message = pb.OK, "OK"
    answer.settings.CopyFrom(answer_settings(parts.broker, session, command.settings, now_ms))
    call.send(answer.SerializeToString())


def _check_size(parts: Parts, call: Call, settings: pb.Settings, now_ms: int) -> None:
    """Before each topic and expression is read. Raises CallFailed."""
    topics, subscriptions = len(settings.publishing.topics), settings.subscription.subscriptions
    try:
        members.check_size(parts.broker, call.peer, topics, len(subscriptions), now_ms)
        tags = sum(1 + one.expression.expression.count("||") for one in subscriptions)
        members.check_size(parts.broker, call.peer, topics, tags, now_ms)
    except Refused as why:
        raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, str(why)) from why


def _session_for(parts: Parts, call: Call, settings: pb.Settings) -> Session:
    """The client, new or known: it may come back on another connection. Raises CallFailed."""
    session = parts.sessions.find(call.metadata[CLIENT_ID])
    if session is None:
        if not parts.sessions.has_room(call.peer):
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, "too many clients")
        session = Session(call.metadata[CLIENT_ID], call, SessionActions(partial(_ended, parts), parts.asked.ask))
        take_settings(session, settings)
        parts.sessions.add(session)
    else:
        take_settings(session, settings)
        parts.sessions.move(session, call.peer)
        if session.telemetry is not call:
            old, session.telemetry = session.telemetry, call
            old.finish()
    call.on_gone = partial(_telemetry_ended, parts, session, call)
    return session


def _telemetry_ended(parts: Parts, session: Session, call: Call, now_ms: int) -> None:
    """The stream ended without a word. The client may come back; what it holds waits for it.

    As in RocketMQ it counts as alive until its last heartbeat is too old. In fenced mode others need not wait so long.
    """
    if session.telemetry is call and parts.broker.config.lock_mode == "fenced":
        client_gone(parts, session, now_ms, parts.broker.config.pop_grace_ms)


def _enrol(parts: Parts, session: Session, settings: pb.Settings, now_ms: int) -> None:
    """The client becomes a member of its group, or a producer of its topics; else it ends."""
    broker, consumers = parts.broker, list[ConsumerData]()
    if session.group:
        consumers = [_consumer(session, settings, now_ms)]
    language = _LANGUAGES.get(settings.user_agent.language, LanguageCode.OTHER)
    channel = ClientChannel(session.client_id, language, _version_of(session), now_ms)
    channel.client_type = enum_name(pb.ClientType, session.client_type)
    try:
        tags = sum(1 + len(one.tags_set) for data in consumers for one in data.subscriptions)
        members.check_size(broker, session, len(consumers) + len(session.topics), tags, now_ms)
        broker.work.start(session, members.register(broker, session, channel, consumers, session.topics))
    except Refused as why:
        # First the status: the end of the client ends its telemetry as well.
        session.telemetry.finish(GrpcStatus.RESOURCE_EXHAUSTED, str(why))
        client_gone(parts, session, now_ms)


def _version_of(session: Session) -> int:
    return version_number(session.telemetry.metadata.get(_CLIENT_VERSION, "")) or _VERSION


def _consumer(session: Session, settings: pb.Settings, now_ms: int) -> ConsumerData:
    subscriptions = []
    for entry in settings.subscription.subscriptions:
        topic, expression = named(entry.topic), entry.expression
        if expression.type == pb.SQL:
            subscriptions.append(SubscriptionData(topic, expression.expression, (), (), now_ms, "SQL92"))
            continue
        try:
            subscriptions.append(SubscriptionData.parse(topic, expression.expression.strip() or None, now_ms))
        except FilterError:
            continue  # what cannot be read filters nothing here; a receive says so
    where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumerData(session.group, session.consume_type, MessageModel.CLUSTERING, where, tuple(subscriptions))


# Heartbeats and the end ------------------------------------------------------------------------------------------


def heartbeat(parts: Parts, call: Call, request: pb.HeartbeatRequest, now_ms: int) -> pb.HeartbeatResponse:
    session = session_of(parts, call)
    _check_group(session, request)
    session.heard_ms = now_ms
    consumers, producers = parts.broker.members.consumers, parts.broker.members.producers
    for group in consumers.memberships.of(session):
        consumers.groups[group].channels[session].last_update_ms = now_ms
    for group in producers.memberships.of(session):
        producers.groups[group][session].last_update_ms = now_ms
    return pb.HeartbeatResponse()


def notify_client_termination(
    parts: Parts, call: Call, request: pb.NotifyClientTerminationRequest, now_ms: int
) -> pb.NotifyClientTerminationResponse:
    """A client ends. Others soon get what a push consumer holds; a simple consumer's time goes on."""
    session = session_of(parts, call)
    _check_group(session, request)
    client_gone(parts, session, now_ms)
    return pb.NotifyClientTerminationResponse()


def _check_group(session: Session, request: pb.HeartbeatRequest | pb.NotifyClientTerminationRequest) -> None:
    """A consumer says for which group it speaks. Raises Failure."""
    if session.group:
        check_group(request.group)


def _ended(parts: Parts, session: Session, reason: str) -> None:
    """A table of members gives the client up: it said nothing for as long as its heartbeats may be late."""
    client_gone(parts, session, session.heard_ms + parts.broker.config.channel_expired_timeout_ms)


def client_gone(parts: Parts, session: Session, now_ms: int, left_ms: int = _LEFT_MS) -> None:
    """The client is no member any more, and others get what was renewed for it after `left_ms`."""
    if not parts.sessions.remove(session):
        return
    for topic, group, *_ in session.parked:
        # Its calls end now: what they would get, nobody would acknowledge.
        parts.broker.messages.pops.held.on_free(topic, group)
    for handle, renewal in parts.renewals.of(session):
        parts.renewals.end(handle)
        _set_invisible(parts, renewal, left_ms, now_ms)
    # First what it holds is noted, by its id in its groups, then it leaves them.
    forsake(parts.broker, session, now_ms)
    parts.broker.on_closed(session)
    parts.broker.ownership.connection_ended(session, now_ms)
    parts.asked.gone(session)
    session.telemetry.finish()


def expire_clients(parts: Parts, now_ms: int) -> None:
    """Called every few seconds."""
    for session in parts.sessions:
        if now_ms - session.heard_ms > parts.broker.config.channel_expired_timeout_ms:
            parts.broker.log.warning(
                "heartbeat_expired", peer=session.address, timeout_ms=parts.broker.config.channel_expired_timeout_ms
            )
            client_gone(parts, session, now_ms)


def refuse_lite_topics(parts: Parts, call: Call, request: pb.SyncLiteSubscriptionRequest, now_ms: int) -> None:
    """There are no topics inside topics here; the text is RocketMQ's for a group that is not bound to one."""
    text = f"is expected to bind topic null, but actual is {named(request.topic)}"
    raise Failure(pb.ILLEGAL_TOPIC, f"lite group {named(request.group)} {text}")


# Renewals --------------------------------------------------------------------------------------------------------


def renew(parts: Parts, now_ms: int) -> bool:
    """What is nearly over is held for longer. Returns whether there may be more of it: other work comes first."""
    due = parts.renewals.due(now_ms, _RENEWED_AT_ONCE_MAX)
    for handle, renewal in due:
        changed = _set_invisible(parts, renewal, renewal.period_ms, now_ms)
        if changed is None:
            # It is acknowledged by another handle, or another delivery has begun.
            parts.renewals.end(handle)
        else:
            parts.renewals.renewed(handle, changed)
    return len(due) == _RENEWED_AT_ONCE_MAX


def _set_invisible(parts: Parts, renewal: Renewal, invisible_ms: int, now_ms: int) -> Receipt | None:
    """Returns what names the delivery from now on; None: it is over."""
    try:
        answered, changed = change_invisible(parts.broker, renewal.session, renewal.delivery, invisible_ms, now_ms)
    except (Refused, StoreFull) as why:
        parts.broker.log.info("renewal_failed", client_id=renewal.session.client_id, reason=str(why))
        return None
    return changed if answered is Answered.DONE else None
