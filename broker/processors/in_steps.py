"""Answers that take longer than others may wait: they are worked out in steps (sliced_work), and sent at the end."""

from collections.abc import Generator
from typing import Final, Protocol

from lockstep.broker.connection import Connection
from lockstep.broker.processors.refusal import Refusal
from lockstep.broker.state.broker import Broker
from lockstep.broker.state.sliced_work import SlicedWork, Steps, Wait
from lockstep.protocol.bodies.rows import BodySteps
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError, RemoteProtocolError
from lockstep.remoting.logs import EventLog

__all__ = ["AnswerSteps", "Worker", "answer_in_steps", "give_fields", "reply_in_steps"]

_LARGE_UNDER_WAY_MAX: Final = 2  # each may have as many bytes as a frame
_UNDER_WAY_MAX: Final = 32  # of one connection; clients wait for an answer before they ask again

# Replies to these have extFields, if empty ones, whatever they say: RocketMQ has a header class for them (wire.md 1.2).
_WITH_FIELDS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
    }
)

AnswerSteps = Generator[Wait | None, None, RemotingCommand]


class Worker(Protocol):
    """A broker or a name server."""

    log: EventLog
    work: SlicedWork


class _UnderWay:
    """`reply`: the answer, once it is there; `late`: the handler has returned without it."""

    def __init__(self, worker: Worker, connection: Connection, command: RemotingCommand) -> None:
        self._log = worker.log
        self._connection = connection
        self._command = command
        self.reply: RemotingCommand | None = None
        self.error: RemoteProtocolError | None = None
        self.late = False

    def steps(self, answer: AnswerSteps) -> Steps:
        command = self._command
        try:
            self.reply = yield from answer
        except Refusal as refusal:
            self.reply = command.reply(refusal.code, remark=str(refusal))
        except RemoteProtocolError as error:
            if not self.late:
                self.error = error  # as if the handler had raised it
                return
            remark = f"{request_name(command.code)}: {error}"
            self._log.info("request_refused", peer=self._connection.address, reason=remark)
            self.reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        except Exception as error:
            remark = f"{request_name(command.code)}: {type(error).__name__}: {error}"
            self._log.error("request_failed", peer=self._connection.address, reason=remark, exc_info=True)
            self.reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        if self.late and not command.is_one_way:
            self._connection.reply(give_fields(command, self.reply))


def give_fields(command: RemotingCommand, reply: RemotingCommand) -> RemotingCommand:
    """The reply with extFields, if empty ones, where RocketMQ's has them."""
    if reply.header is None and reply.ext_fields is None and command.code in _WITH_FIELDS:
        reply.ext_fields = {}
    return reply


def answer_in_steps(
    worker: Worker, connection: Connection, command: RemotingCommand, answer: AnswerSteps
) -> RemotingCommand | None:
    """The answer, when this turn of the loop has time for all of it; else None, and it is sent later.

    Requests of one connection are worked on in the order in which they came.
    """
    if worker.work.count_of(connection) >= _UNDER_WAY_MAX:
        remark = f"{_UNDER_WAY_MAX} requests of this connection are still worked on; wait for their answers"
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    under_way = _UnderWay(worker, connection, command)
    worker.work.start(connection, under_way.steps(answer))
    under_way.late = True
    if under_way.error is not None:
        raise under_way.error
    return under_way.reply


def reply_in_steps(
    broker: Broker, connection: Connection, command: RemotingCommand, body: BodySteps
) -> RemotingCommand | None:
    """The answer with a large body, of which a connection may ask for few at a time."""

    def answer() -> AnswerSteps:
        try:
            written = yield from body
        except LocalProtocolError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{error}; ask for one at a time") from None
        return command.reply(ResponseCode.SUCCESS, body=written)

    if broker.work.count_of(connection) >= _LARGE_UNDER_WAY_MAX:
        raise Refusal(ResponseCode.SYSTEM_BUSY, "a large answer to this connection is still worked on; wait for it")
    return answer_in_steps(broker, connection, command, answer())
