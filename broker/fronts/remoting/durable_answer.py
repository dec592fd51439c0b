"""Answers to requests that begin a period of ownership: they wait until it is on the disk, if it is kept there."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue

__all__ = ["Begun", "answer_when_durable"]


class Begun(NamedTuple):
    """Periods of one group that began at one time, by queue and epoch."""

    consumer_group: str
    periods: Sequence[tuple[MessageQueue, int]]
    now_ms: int


def answer_when_durable(
    broker: Broker, connection: Connection, command: RemotingCommand, reply: RemotingCommand, begun: Begun
) -> RemotingCommand | None:
    """Returns the reply if nothing waits for the disk, else None. Periods that cannot be kept end unanswered."""
    if broker.ownership.is_durable:
        return reply
    broker.ownership.when_durable(*begun, partial(_answer, connection, command, reply))
    return None


def _answer(connection: Connection, command: RemotingCommand, reply: RemotingCommand, reason: str) -> None:
    if reason:
        reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=reason)
    if not command.is_one_way:
        connection.reply(reply)
