"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE (wire.md 11)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import transaction as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.after import After, What
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.protocol.codes import ResponseCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.admin import ResumeCheckHalfMessageRequestHeader
from lockstep.protocol.headers.messaging import EndTransactionRequestHeader

__all__ = ["end_transaction", "resume_check"]

_UNKNOWN: Final = 0
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_MASK)  # both bits


def end_transaction(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After | None:
    """A producer that does not know yet gets no answer, as in RocketMQ."""
    header = command.decode_header(EndTransactionRequestHeader)
    decision = header.commit_or_rollback
    if decision == _UNKNOWN:
        return None
    if decision not in (_COMMIT, _ROLLBACK):
        raise HeaderError(f"the field commitOrRollback must be 8, 12 or 0, not {decision}")
    half = HalfMessage(header.tran_state_table_offset, header.commit_log_offset)
    core.end_transaction(broker, header.producer_group, half, decision == _COMMIT, now_ms)
    # RocketMQ sends a remark too.
    reply = command.reply(ResponseCode.SUCCESS, remark=None if decision == _COMMIT else "rolled back")
    # Also when it was ended before: the message of that request may not be synced yet.
    return After(reply, What.LOG)


def resume_check(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    core.resume_check(broker, command.decode_header(ResumeCheckHalfMessageRequestHeader).msg_id, now_ms)
    return After(command.reply(ResponseCode.SUCCESS), What.LOG)
