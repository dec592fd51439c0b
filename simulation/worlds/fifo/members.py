"""The members of a FIFO group: they receive, handle, acknowledge, renew and give back, as their plan says."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lockstep.client import ClientError, ConsumerError, MessageQueue, SimpleConsumer, StaleDeliveryError
from lockstep.client.consumer.pop_calls import Delivery
from lockstep.client.lifecycle import ServiceState
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.findings import Findings
from lockstep.simulation.worlds.fifo.effects import Effects, KeyOfQueue
from lockstep.simulation.worlds.fifo.plan import FifoPlan

__all__ = ["Members"]

_AGAIN_MS: Final = 300
_ACKS_MAX: Final = 3  # of one delivery: an answer may be lost
_PERCENT: Final = 100
_BACK_MS: Final = (0, 0, 700)
_ERRORS: Final = (ClientError, RemotingError, RemoteProtocolError)


class _Act(Enum):
    """What a member does with a delivery."""

    ACK = "ack"
    SLOW = "slow"
    RENEW = "renew"
    FAIL = "fail"
    FORGET = "forget"


@dataclass
class Members:
    """What all members do. `calm`: everything is healed, and no call is slow or fails any more."""

    plan: FifoPlan
    findings: Findings
    effects: Effects
    calm: bool = False

    async def receive(self, consumer: SimpleConsumer, process: str) -> None:
        """One loop of a member, until it is shut down."""
        rng = random.Random(f"{self.plan.seed}/{process}")
        while consumer.state is ServiceState.RUNNING:
            count_max = rng.choice((self.plan.count_max, rng.randint(1, self.plan.count_max)))
            try:
                deliveries = await consumer.receive(count_max, self.plan.invisible_ms)
            except _ERRORS:
                self.findings.saw("pops failed")
                await asyncio.sleep(_AGAIN_MS / 1000)
            else:
                await self._handle_all(consumer, process, deliveries)

    async def _handle_all(self, consumer: SimpleConsumer, process: str, deliveries: Sequence[Delivery]) -> None:
        parts: dict[KeyOfQueue | None, list[Delivery]] = {}
        for delivery in deliveries:
            parts.setdefault(_place_of(delivery) if self.plan.by_key else None, []).append(delivery)
        if len(parts) == 1:
            await _Turn(self, consumer, process).handle(deliveries)
            return
        async with asyncio.TaskGroup() as tasks:
            for part in parts.values():
                tasks.create_task(_Turn(self, consumer, process).handle(part))


class _Turn:
    """Deliveries that one member handles one after the other."""

    def __init__(self, members: Members, consumer: SimpleConsumer, process: str) -> None:
        self._members = members
        self._plan = members.plan
        self._findings = members.findings
        self._consumer = consumer
        self._process = process
        # What follows a message that is not acknowledged comes again: its effect would be too early.
        self._broken: set[KeyOfQueue] = set()

    async def handle(self, deliveries: Sequence[Delivery]) -> None:
        handled, acks_last = list[Delivery](), self._plan.acks_last and not self._members.calm
        for delivery in deliveries:
            if _place_of(delivery) in self._broken:
                await self._leave(delivery)
            elif not await self._is_handled(delivery):
                self._broken.add(_place_of(delivery))
            elif acks_last:
                handled.append(delivery)
            else:
                await self._ack(delivery)
        for delivery in handled:
            await self._ack(delivery)

    async def _is_handled(self, delivery: Delivery) -> bool:
        """Handle a message. Returns False if it is not to be acknowledged."""
        place, offset = _place_of(delivery), delivery.message.queue_offset
        fence = delivery.receipt.pop_ms
        act = self._drawn(delivery)
        try:
            with self._consumer.handling(delivery):
                self._members.effects.begin(place, fence)
                await self._work(delivery, act)
        except StaleDeliveryError:
            self._findings.saw("calls not begun")
            return False
        except ConsumerError:
            # It is shut down.
            return False
        if act is _Act.FAIL:
            await self._change(delivery, random.Random(self._seed_of(delivery)).choice(_BACK_MS))
            return False
        if not self._members.effects.write(place, offset, fence, self._process):
            return False
        return act is not _Act.FORGET

    def _seed_of(self, delivery: Delivery) -> str:
        place = (delivery.message.queue_id, delivery.message.queue_offset, delivery.receipt.pop_ms)
        return f"{self._plan.seed}/{place}/{self._process}"

    def _drawn(self, delivery: Delivery) -> _Act:
        if self._plan.is_poison(delivery.message.body.decode()):
            return _Act.FAIL
        if self._members.calm:
            return _Act.ACK
        place, plan = random.Random(self._seed_of(delivery)).randrange(_PERCENT), self._plan
        parts = {
            _Act.SLOW: plan.slow,
            _Act.RENEW: plan.renewing,
            _Act.FAIL: plan.failing,
            _Act.FORGET: plan.forgetting,
        }
        for act, part in parts.items():
            if place < part:
                self._findings.saw(f"deliveries: {act.value}")
                return act
            place -= part
        return _Act.ACK

    async def _work(self, delivery: Delivery, act: _Act) -> None:
        if act in (_Act.SLOW, _Act.RENEW):
            await self._work_long(delivery, renews=act is _Act.RENEW)
        else:
            await asyncio.sleep(self._plan.work_ms / 1000)

    async def _work_long(self, delivery: Delivery, *, renews: bool) -> None:
        """Longer than the invisible time."""
        step_ms = self._plan.invisible_ms * 2 // 5
        for _ in range(4):
            await asyncio.sleep(step_ms / 1000)
            if renews and not await self._change(delivery, self._plan.invisible_ms):
                return

    async def _leave(self, delivery: Delivery) -> None:
        if self._plan.gives_back:
            await self._change(delivery, 0)

    async def _change(self, delivery: Delivery, invisible_ms: int) -> bool:
        try:
            await self._consumer.change_invisible(delivery, invisible_ms)
        except StaleDeliveryError:
            self._findings.saw("renewals refused")
        except _ERRORS:
            self._findings.saw("calls failed")
        else:
            return True
        return False

    async def _ack(self, delivery: Delivery) -> None:
        """Unless an earlier message of its key is not acknowledged."""
        if _place_of(delivery) in self._broken:
            await self._leave(delivery)
            return
        for _ in range(_ACKS_MAX):
            try:
                await self._consumer.ack(delivery)
            except StaleDeliveryError:
                self._findings.saw("acks refused")
                if self._plan.goes_on:
                    return
                break
            except _ERRORS:
                self._findings.saw("calls failed")
                await asyncio.sleep(_AGAIN_MS / 1000)
            else:
                return
        self._broken.add(_place_of(delivery))


def _place_of(delivery: Delivery) -> KeyOfQueue:
    message = delivery.message
    return KeyOfQueue(MessageQueue(message.topic, message.broker_name, message.queue_id), message.sharding_key)
