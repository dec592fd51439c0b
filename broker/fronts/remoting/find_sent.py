"""FIND_SENT (30008): whether a send that had no answer is stored, asked before it is repeated (docs/wire.md 17.3)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import find_sent as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.fronts.remoting.send import batch_response
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import FindSentRequestHeader
from lockstep.store import StoreFull

__all__ = ["find_sent"]


def find_sent(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Where the messages of a send are in its queue, as the lost answer told, or QUERY_NOT_FOUND."""
    header = command.decode_header(FindSentRequestHeader)
    if not 0 < header.message_count <= broker.config.batch_messages_max:
        allowed = f"must be 1 to {broker.config.batch_messages_max}"
        raise HeaderError(f"the field messageCount {allowed}, but is {header.message_count}")
    search = core.find_sent(broker, connection, header, now_ms)
    return answer_in_steps(broker, connection, command, _answer(broker, command, header, search), apart=True)


def _answer(
    broker: Broker, command: RemotingCommand, header: FindSentRequestHeader, search: core.Search
) -> AnswerSteps:
    try:
        stored = yield from search
    except StoreFull as why:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, str(why)) from None
    if stored:
        return command.reply(ResponseCode.SUCCESS, batch_response(broker, header.queue_id, stored))
    remark = f"message {header.message_id} is not in queue {header.queue_id} of topic {header.topic!r}"
    return command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
