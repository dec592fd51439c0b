"""Delivery: one delivery of one message to a consumer that pops (docs/wire.md 18)."""

import asyncio
from dataclasses import dataclass, field

from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.receipts import Receipt

__all__ = ["Delivery"]


@dataclass(slots=True, eq=False)
class Delivery:
    """One delivery of one message.

    Attributes:
        receipt: Names the delivery to its broker. `change_invisible` gives it another one.
        times_before: How often the message was delivered before.
        is_settled: It was acknowledged, or given back at once.
        turn: Calls of one delivery wait for each other: a change may give it another receipt.
        until_ns: Of a fenced delivery, on the client's clock: it does not end before, unless its connection does. None:
            the broker takes the answer to a delivery that has ended, so nobody asks.
        began: When its call began, as (wall_ms, mono_ns); None: none runs.
        is_recorded: The trace has its call.
    """

    message: MessageExt
    receipt: Receipt
    times_before: int
    is_settled: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    until_ns: int | None = None
    began: tuple[int, int] | None = None
    is_recorded: bool = False

    def has_ended(self, now_ns: int) -> bool:
        """Whether a fenced delivery may be over, so that another client may have the message."""
        return self.until_ns is not None and now_ns >= self.until_ns
