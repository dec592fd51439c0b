"""Answers that take long are computed in steps, so that other requests do not wait (see `state/sliced_work.py`)."""

from collections.abc import Callable, Generator
from typing import Final, Protocol

from lockstep.broker.connection import Connection
from lockstep.broker.fronts.remoting.refusal import REFUSALS, Refusal, code_of
from lockstep.broker.sliced_work import SlicedWork, Steps, Wait
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError, RemoteProtocolError
from lockstep.remoting.logs import EventLog

__all__ = ["AnswerSteps", "Worker", "answer_in_steps", "give_fields", "reply_in_steps"]

# Requests of one connection that wait for their turn. RocketMQ queues them without a bound; rocketmq-exporter has some
# hundred in flight, a producer asks one question for each of its queues. What waits is the request alone, some 2 KB.
_UNDER_WAY_MAX: Final = 1024

# Replies to these always have extFields, perhaps empty: RocketMQ has a header class for them (wire.md 1.2).
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
    """A request in work. `reply`: its answer, when it is ready; `late`: the handler returned before that."""

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
        except REFUSALS as refusal:
            self.reply = command.reply(code_of(refusal), remark=str(refusal))
        except RemoteProtocolError as error:
            if not self.late:
                # As if the handler had raised it.
                self.error = error
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
    """Give the reply empty extFields where RocketMQ's reply has them."""
    if reply.header is None and reply.ext_fields is None and command.code in _WITH_FIELDS:
        reply.ext_fields = {}
    return reply


def answer_in_steps(
    worker: Worker, connection: Connection, command: RemotingCommand, answer: AnswerSteps, *, apart: bool = False
) -> RemotingCommand | None:
    """Run the steps of an answer. Requests of one connection are handled in their order.

    Args:
        apart: Only requests with this code wait for it: it may wait for the disk, and a heartbeat must not.

    Returns:
        The answer, if this turn of the loop had time for all steps; otherwise None, and the answer is sent later.

    Raises:
        Refusal: Too many requests of this connection are in work.
    """
    key = (connection, command.code) if apart else connection
    if worker.work.count_of(key) >= _UNDER_WAY_MAX:
        remark = f"{_UNDER_WAY_MAX} requests of this connection are still in work; wait for their answers"
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    under_way = _UnderWay(worker, connection, command)
    worker.work.start(key, under_way.steps(answer))
    under_way.late = True
    if under_way.error is not None:
        raise under_way.error
    return under_way.reply


def reply_in_steps(
    worker: Worker,
    connection: Connection,
    command: RemotingCommand,
    body: Callable[[], Generator[Wait | None, None, bytes]],
    remark: Callable[[], str] | None = None,
) -> RemotingCommand | None:
    """As `answer_in_steps`, for an answer with a large body.

    Args:
        body: Makes the steps when it is the request's turn: what it copies of a table is not kept while it waits.
        remark: Called when the body is written.
    """

    def answer() -> AnswerSteps:
        # An answer of up to a frame's size is not made before the peer has taken the ones before it.
        while connection.write_paused and connection.is_open:
            yield connection.when_writable
        try:
            written = yield from body()
        except LocalProtocolError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{error}; ask for one at a time") from None
        return command.reply(ResponseCode.SUCCESS, body=written, remark=remark() if remark is not None else None)

    return answer_in_steps(worker, connection, command, answer())
