"""The trace of a producer: every send leaves a record, also one that was cancelled or cut short by the shutdown."""

import asyncio
from collections.abc import Awaitable

from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.producer.outgoing import Outgoing
from lockstep.client.send_result import SendResult
from lockstep.order.traces.format import SENT_LATER
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import decode_properties

__all__ = ["SendTrace"]


class SendTrace:
    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._under_way: dict[str, Outgoing] = {}  # by msg_id

    async def follow(self, outgoing: Outgoing, sending: Awaitable[SendResult]) -> SendResult:
        """Wait for the end of a send, and record it. Raises what `sending` raises."""
        self._under_way[outgoing.msg_id] = outgoing
        try:
            result = await sending
        except SendError as error:
            self._failed(outgoing, error.outcome)
            raise
        except asyncio.CancelledError:
            # The broker may store it all the same.
            self._failed(outgoing, SendOutcome.UNKNOWN)
            raise
        finally:
            is_open = self._under_way.pop(outgoing.msg_id, None) is not None
        if is_open and _waits(outgoing):
            # Its offset is of the hidden topic where it waits.
            self._writer.send_failed(outgoing.topic, outgoing.sharding_key, outgoing.msg_ids, SENT_LATER)
        elif is_open:
            self._writer.sent(result.queue, result.queue_offset, outgoing.sharding_key, outgoing.msg_ids)
        return result

    def _failed(self, outgoing: Outgoing, outcome: SendOutcome) -> None:
        if outgoing.msg_id in self._under_way:
            self._writer.send_failed(outgoing.topic, outgoing.sharding_key, outgoing.msg_ids, outcome.name)

    def close(self) -> None:
        """Nobody hears how the sends end that are under way: their outcome is unknown."""
        for outgoing in self._under_way.values():
            self._failed(outgoing, SendOutcome.UNKNOWN)
        self._under_way.clear()
        self._writer.close()


def _waits(outgoing: Outgoing) -> bool:
    """Whether it asks the broker for a delay or a time."""
    if not outgoing.special:
        return False
    properties = decode_properties(outgoing.properties)
    return names.DELAY in properties or not names.TIMED.isdisjoint(properties)
