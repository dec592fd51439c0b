"""The answers of a consumer in POP mode: acknowledged, given back, tried again later, or a dead letter."""

import asyncio
from collections.abc import Callable
from typing import Final

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.pop.held import Held, HeldMessages
from lockstep.client.consumer.pop_calls import CALL_ERRORS, PopCalls
from lockstep.client.consumer.send_back import ask_for_copy
from lockstep.client.errors import StaleDeliveryError

__all__ = ["EXPIRED", "Answers", "OnLost"]

OnLost = Callable[[Held, str], None]
_AGAIN_MS: Final = 1000
_LOOKS: Final = 8  # in an invisible time: four tries fit into its second half
_MS_NS: Final = 1_000_000
_DEAD_LETTER: Final = -1  # as a delay level (wire.md 10.1)
_ENDED: Final = "the broker says that its delivery has ended"
_STOPS: Final = "the consumer stops"
EXPIRED: Final = "its invisible time has ended"


class Answers:
    """Tells the brokers what became of deliveries.

    Args:
        on_lost: Called when a delivery has ended, and another client may have its message.
    """

    def __init__(self, member: Membership, calls: PopCalls, held: HeldMessages, on_lost: OnLost) -> None:
        self._member = member
        self._runtime = member.runtime
        self._log = member.log
        self._calls = calls
        self._held = held
        self._lost = on_lost
        self._invisible_ms = member.config.pop_invisible_ms
        self.closed = False  # an acknowledgement is not repeated any more

    async def ack(self, held: Held) -> bool:
        """Say that a message is consumed, again and again while its delivery lasts. Returns whether a broker took it.

        An acknowledgement whose answer is lost may be repeated.
        """
        held.is_handled, said = True, False
        while True:
            delivery = held.delivery
            try:
                await self._calls.ack(delivery)
            except StaleDeliveryError:
                if held.delivery is not delivery:
                    # Delivered to this client again meanwhile.
                    continue
                self._lost(held, _ENDED)
                return False
            except CALL_ERRORS as error:
                is_over = self._runtime.monotonic_ns() >= held.until_ns
                if is_over or self.closed:
                    self._lost(held, EXPIRED if is_over else _STOPS)
                    return False
                if not said:
                    said = True
                    self._say("ack", held, error)
                await asyncio.sleep(_AGAIN_MS / 1000)
            else:
                if held.delivery is delivery:
                    self._held.forget(held)
                    return True

    async def try_later(self, held: Held, delay_ms: int) -> None:
        """The broker delivers it again then. If it does not get this, it does so at the end of the invisible time."""
        held.is_handled = True
        try:
            await self._calls.change_invisible(held.delivery, delay_ms)
        except StaleDeliveryError:
            self._lost(held, _ENDED)
            return
        except CALL_ERRORS as error:
            self._say("change_invisible", held, error)
        self._held.forget(held)

    async def dead_letter(self, held: Held, limit: int) -> bool:
        """Make a dead letter of a message, and acknowledge it. Returns whether the broker made one.

        Args:
            limit: The attempts after the first one.
        """
        message, queue, sent_ns = held.delivery.message, held.queue, self._runtime.monotonic_ns()
        try:
            await ask_for_copy(self._member, queue.broker_name, queue.topic, message, _DEAD_LETTER, limit)
        except CALL_ERRORS as error:
            self._log.warning("dead_letter_not_sent", queue=str(held.queue), error=str(error))
            return False
        self._log.warning(
            "dead_lettered",
            queue=str(held.queue),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            reconsume_times=held.message.reconsume_times,
        )
        if self._calls.trace is not None:
            self._calls.trace.dead_lettered(held.delivery, sent_ns)
        # First the dead letter, then the acknowledgement: between them the message is twice there, never lost.
        await self.ack(held)
        return True

    # Renewal -------------------------------------------------------------------------------------------------

    async def renew_forever(self) -> None:
        """Renew what is held when half of its invisible time is over; the rest is for further tries."""
        half_ns = self._invisible_ms * _MS_NS // 2
        while True:
            await asyncio.sleep(self._invisible_ms / _LOOKS / 1000)
            try:
                now_ns, open_ones = self._runtime.monotonic_ns(), self._open()
                for held in open_ones:
                    if now_ns >= held.until_ns and not held.is_lost:
                        self._lost(held, EXPIRED)
                due = [one for one in open_ones if one.until_ns - now_ns <= half_ns or one.delivery.has_ended(now_ns)]
                await asyncio.gather(*[self.renew(held) for held in due if not held.is_lost])
            except BaseException as error:
                log_or_raise(self._log, "renewal_failed", error, consequence="tried again")

    async def connection_ended(self) -> None:
        """With fenced deliveries: others get what this client held there, unless it says soon that it lives."""
        now_ns = self._runtime.monotonic_ns()
        await asyncio.gather(*[self.renew(held) for held in self._open() if held.delivery.has_ended(now_ns)])

    def _open(self) -> list[Held]:
        return [held for held in self._held if not held.is_handled and not held.is_lost]

    async def renew(self, held: Held) -> None:
        """Try once."""
        delivery, began_ns = held.delivery, self._runtime.monotonic_ns()
        try:
            await self._calls.change_invisible(delivery, self._invisible_ms)
        except StaleDeliveryError:
            # A newer delivery may have come to this client meanwhile, or its call may have ended.
            if held.delivery is delivery and not held.is_lost and not held.is_handled:
                self._lost(held, _ENDED)
        except CALL_ERRORS as error:
            self._say("change_invisible", held, error)
        else:
            if held.delivery is delivery:
                # From before the call: the broker counts from a later moment on.
                held.until_ns = began_ns + self._invisible_ms * _MS_NS

    def _say(self, call: str, held: Held, error: Exception) -> None:
        self._log.warning(
            "pop_call_failed", call=call, queue=str(held.queue), offset=held.message.queue_offset, error=str(error)
        )
