"""Answers that take longer than others may wait: they are worked out in steps (sliced_work), and sent at the end."""

from collections.abc import Generator
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.broker.processors.refusal import Refusal
from lockstep.broker.sliced_work import Steps, Wait
from lockstep.protocol.codes import ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand

__all__ = ["AnswerSteps", "answer_in_steps"]

_UNDER_WAY_MAX: Final = 32  # of one connection; clients wait for an answer before they ask again

AnswerSteps = Generator[Wait | None, None, RemotingCommand]


class _UnderWay:
    """`reply`: the answer, once it is there; `late`: the handler has returned without it."""

    def __init__(self, broker: Broker, connection: Connection, command: RemotingCommand) -> None:
        self._log = broker.log
        self._connection = connection
        self._command = command
        self.reply: RemotingCommand | None = None
        self.late = False

    def steps(self, answer: AnswerSteps) -> Steps:
        command = self._command
        try:
            self.reply = yield from answer
        except Refusal as refusal:
            self.reply = command.reply(refusal.code, remark=str(refusal))
        except Exception as error:
            remark = f"{request_name(command.code)}: {type(error).__name__}: {error}"
            self._log.error("request failed", peer=self._connection.address, reason=remark, exc_info=True)
            self.reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        if self.late and not command.is_one_way:
            self._connection.reply(self.reply)


def answer_in_steps(
    broker: Broker, connection: Connection, command: RemotingCommand, answer: AnswerSteps
) -> RemotingCommand | None:
    """The answer, when this turn of the loop has time for all of it; else None, and it is sent later.

    Requests of one connection are worked on in the order in which they came.
    """
    if broker.work.count_of(connection) >= _UNDER_WAY_MAX:
        remark = f"{_UNDER_WAY_MAX} requests of this connection are still worked on; wait for their answers"
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    under_way = _UnderWay(broker, connection, command)
    broker.work.start(connection, under_way.steps(answer))
    under_way.late = True
    return under_way.reply
