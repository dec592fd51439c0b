"""What administrators ask of a client: requests of RocketMQ 4's protocol, for a client of this front.

The broker answers what it knows itself. Two questions go to the client as commands of its telemetry: handle this
message, and show your threads.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from lockstep.broker.catalog.members import ClientChannel, ConsumerGroup
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.sessions import Session, Then
from lockstep.broker.fronts.grpc.translate import Delivered, to_message
from lockstep.protocol.bodies.client import (
    POPS,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
)
from lockstep.protocol.bodies.codec import WireBody, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.headers.admin import GetConsumerRunningInfoRequestHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.versions import version_name
from lockstep.remoting.errors import ConnectionLost, RequestTimeout
from lockstep.remoting.host.runtime import TimerHandle

__all__ = ["Asked"]

_UNZIPPED_BYTES_MAX: Final = 16 * 1024 * 1024
_STACKS_CHARACTERS_MAX: Final = 512 * 1024
_ANSWERS: Final = {
    "thread_stack_trace": RequestCode.GET_CONSUMER_RUNNING_INFO,
    "verify_message_result": RequestCode.CONSUME_MESSAGE_DIRECTLY,
}
_RESULTS: Final = {
    pb.OK: CMResult.CR_SUCCESS,
    pb.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    pb.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}


class _Question(NamedTuple):
    session: Session
    request: RemotingCommand
    then: Then
    timer: TimerHandle


class Asked:
    """Questions that clients have not answered yet.

    Args:
        call_later_ms: Calls back after so long.
    """

    def __init__(self, broker: Broker, call_later_ms: Callable[[int, Callable[[], None]], TimerHandle]) -> None:
        self._broker = broker
        self._call_later_ms = call_later_ms
        self._by_nonce: dict[str, _Question] = {}
        self._nonces = count(1)

    def ask(self, session: Session, request: RemotingCommand, timeout_ms: int, then: Then) -> None:
        """Call `then` with the answer as of a client of RocketMQ 4."""
        match request.code:
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                command = pb.TelemetryCommand()
                (stored,) = decode_messages(request.body, unzip=False)
                delivered = Delivered(stored.topic, _UNZIPPED_BYTES_MAX, self._broker.config.max_message_bytes)
                command.verify_message_command.message.CopyFrom(to_message(stored, delivered, "", 1))
                self._send(session, command.verify_message_command, command, request, timeout_ms, then)
            case RequestCode.GET_CONSUMER_RUNNING_INFO if _wants_stacks(request):
                command = pb.TelemetryCommand()
                self._send(session, command.print_thread_stack_trace_command, command, request, timeout_ms, then)
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                then(_answer(request, self._info(session, request)))
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                then(_answer(request, GetConsumerStatusBody({}, {})))  # its offsets are the broker's
            case _:
                remark = f"a client of gRPC is not asked {request_name(request.code)}"
                then(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark))

    def _send(
        self,
        session: Session,
        asks: Any,
        command: pb.TelemetryCommand,
        request: RemotingCommand,
        timeout_ms: int,
        then: Then,
    ) -> None:
        """`asks`: the part of the command that has the nonce."""
        asks.nonce = str(next(self._nonces))
        timer = self._call_later_ms(timeout_ms, partial(self._late, asks.nonce, timeout_ms))
        self._by_nonce[asks.nonce] = _Question(session, request, then, timer)
        session.telemetry.send(command.SerializeToString())

    def _late(self, nonce: str, timeout_ms: int) -> None:
        one = self._by_nonce.pop(nonce)
        one.then(RequestTimeout(one.session.address, request_name(one.request.code), timeout_ms))

    def gone(self, session: Session) -> None:
        """A client has ended: it answers nothing more."""
        for nonce in [nonce for nonce, one in self._by_nonce.items() if one.session is session]:
            one = self._by_nonce.pop(nonce)
            one.timer.cancel()
            one.then(ConnectionLost(session.address, "the client ended"))

    def answered(self, session: Session, command: pb.TelemetryCommand) -> None:
        """A client says something that is no settings. What nobody asked it is dropped."""
        kind = command.WhichOneof("command")
        if kind not in _ANSWERS:
            return
        one = self._by_nonce.get(getattr(command, kind).nonce)
        if one is None or one.session is not session or one.request.code != _ANSWERS[kind]:
            return
        del self._by_nonce[getattr(command, kind).nonce]
        one.timer.cancel()
        if kind == "verify_message_result":
            one.then(_answer(one.request, self._result(one, command.status)))
        elif command.status.code == pb.OK:
            stacks = command.thread_stack_trace.thread_stack_trace[:_STACKS_CHARACTERS_MAX]
            one.then(_answer(one.request, self._info(session, one.request)._replace(jstack=stacks)))
        else:
            one.then(one.request.reply(ResponseCode.SYSTEM_ERROR, remark=command.status.message))

    def _result(self, one: _Question, status: pb.Status) -> ConsumeMessageDirectlyResult:
        """What its listener did; a status that says nothing of it is an exception."""
        group = self._broker.catalog.groups.get(one.session.group)
        in_order = group is not None and bool(group.consume_message_orderly)
        result = _RESULTS.get(status.code, CMResult.CR_THROW_EXCEPTION)
        return ConsumeMessageDirectlyResult(in_order, True, result, status.message or "from gRPC client")

    def _info(self, session: Session, request: RemotingCommand) -> ConsumerRunningInfo:
        """What the broker knows of a consumer, under the names that RocketMQ's tools read."""
        members = self._broker.members.consumers.groups.get(session.group)
        channel = members.channels.get(session) if members is not None else None
        if members is None or channel is None:
            return ConsumerRunningInfo({}, (), {}, {})
        subscriptions = tuple(data for _, data in sorted(members.subscriptions.items()))
        return ConsumerRunningInfo(self._properties(session, members, channel), subscriptions, {}, {})

    def _properties(self, session: Session, members: ConsumerGroup, channel: ClientChannel) -> dict[str, str]:
        group = self._broker.catalog.groups.get(session.group)
        return {
            "PROP_CLIENT_VERSION": version_name(channel.version),
            "PROP_CONSUMEORDERLY": str(group is not None and bool(group.consume_message_orderly)).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(channel.first_update_ms),
            "PROP_CONSUME_TYPE": session.consume_type.name,
            "clientType": channel.client_type,
            "consumerGroup": session.group,
            "messageModel": members.message_model.name,
            POPS: "true",
        }


def _wants_stacks(request: RemotingCommand) -> bool:
    return request.decode_header(GetConsumerRunningInfoRequestHeader).jstack_enable


def _answer(request: RemotingCommand, body: WireBody) -> RemotingCommand:
    return request.reply(ResponseCode.SUCCESS, body=encode_body(body, request.serialize_type))
