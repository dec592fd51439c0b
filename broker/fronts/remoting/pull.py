"""PULL_MESSAGE: the fields of the request, and RocketMQ's codes of the answer (wire.md 6)."""

from functools import partial
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pull import Pull, pull
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.in_steps import give_fields
from lockstep.broker.messages.pull_answers import NoRoom, Nothing, PullAnswer, Why
from lockstep.broker.ownership.denial import Denial
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    LitePullMessageResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.under_way import busy
from lockstep.store import GetResult, GetStatus

__all__ = ["pull_message"]

_COMMIT: Final = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_BULK: Final = int(PullSysFlag.BULK)
_MASTER_ID: Final = 0
_LITE: Final = int(RequestCode.LITE_PULL_MESSAGE)
_CODES: Final[dict[Why, int]] = {
    Why.NOTHING_NEW: ResponseCode.PULL_NOT_FOUND,
    Why.NOTHING_MATCHED: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Why.OUT_OF_BOUNDS: ResponseCode.PULL_OFFSET_MOVED,
    # An unmodified client takes an error for a passing fault, and this for the end of a wait (wire.md 12.6).
    Why.NOT_OWNER: ResponseCode.PULL_NOT_FOUND,
}
# Administrators' tools read the name of the store's status in the remark (wire.md 6.3). Looked up once: in an enum it
# costs as much as a call.
_FOUND: Final = GetStatus.FOUND.name
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)


def pull_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer | None:
    """Answer with messages, or hold the pull until a message arrives or its wait time is over."""
    header = command.decode_header(PullMessageRequestHeader)
    group, topic, queue_id, offset, count, flags, commit_offset, wait_ms, sub_version, text, kind, epoch, owner = header
    expression = (kind, text) if flags & _SUBSCRIPTION else None
    committed = commit_offset if flags & _COMMIT else None
    bulk = flags & _BULK != 0
    asked = new_tuple(
        Pull, (group, topic, queue_id, offset, count, wait_ms, sub_version, expression, committed, bulk, epoch, owner)
    )
    may_wait = flags & _SUSPEND and not command.is_one_way
    then = partial(_answer_later, connection, command) if may_wait else None
    answer = pull(broker, connection, asked, now_ms, then)
    if answer is not None:
        reply = _reply(command, answer)
        # Then the broker has stored a message about it.
        return After(reply, What.LOG) if reply.code == _MOVED else reply
    # A peer chooses the length of these fields, and thousands of pulls may wait. The reply needs none.
    command.body, command.ext_fields, command.positional = b"", None, None
    return None


def _answer_later(connection: Connection, command: RemotingCommand, answer: PullAnswer) -> None:
    connection.reply(_reply(command, answer))


def _reply(command: RemotingCommand, answer: PullAnswer) -> RemotingCommand:
    if not isinstance(answer, GetResult):
        return _no_messages(command, answer)
    _, next_offset, min_offset, max_offset, body, _ = answer
    header = new_tuple(PullMessageResponseHeader, (_MASTER_ID, next_offset, min_offset, max_offset))
    return command.reply(_SUCCESS, _with_flags(command, header), body, remark=_FOUND)


def _no_messages(command: RemotingCommand, answer: Nothing | Denial | NoRoom) -> RemotingCommand:
    if isinstance(answer, Nothing):
        why, got = answer
        header = PullMessageResponseHeader(_MASTER_ID, got.next_begin_offset, got.min_offset, got.max_offset)
        remark = "another client owns the queue" if why is Why.NOT_OWNER else got.status.name
        return command.reply(_CODES[why], _with_flags(command, header), remark=remark)
    if isinstance(answer, Denial):
        return give_fields(command, command.reply(answer.code, remark=answer.remark))
    # Java's clients wait 3 s after it, and ours one.
    return give_fields(command, busy(command, "OVERLOAD", *answer))


def _with_flags(command: RemotingCommand, header: PullMessageResponseHeader) -> tuple[int, ...]:
    """The answer to RocketMQ 5's proxy has flags of namespaces and units; nothing here has any."""
    return LitePullMessageResponseHeader(*header, 0, 0) if command.code == _LITE else header
