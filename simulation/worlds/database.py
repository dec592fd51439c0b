"""The database of a service whose effects are guarded: one fence row a queue, checked with each effect.

It stands for the recipe of docs/fencing.md: the epoch of the lock is written with each effect, in one transaction, and
an effect under an older epoch than the row has is rejected. Without epochs it takes everything.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.client import MessageExt, MessageQueue
from lockstep.simulation.lab.findings import Findings, Wrong, place_of

__all__ = ["Database"]


class _Effect(NamedTuple):
    offset: int
    epoch: int
    process: str

    def __str__(self) -> str:
        epoch = f" under epoch {self.epoch}" if self.epoch else ""
        return f"offset {self.offset} by {self.process}{epoch}"


@dataclass
class Database:
    findings: Findings
    fences: dict[MessageQueue, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  # of messages whose effect was accepted
    resets: bool = False  # an administrator moved offsets back: effects may repeat in one period
    _last: dict[tuple[MessageQueue, str | None], _Effect] = field(default_factory=dict)
    _highest: dict[tuple[MessageQueue, str | None], int] = field(default_factory=dict)
    _void: set[str] = field(default_factory=set)  # messages that a broker lost with its log

    def raise_fence(self, queue: MessageQueue, epoch: int) -> bool:
        """Returns False if a later epoch stands there."""
        if epoch < self.fences.get(queue, 0):
            return False
        self.fences[queue] = epoch
        return True

    def write(self, queue: MessageQueue, message: MessageExt, epoch: int, process: str) -> bool:
        """An effect of a message. Returns False if it was rejected."""
        if epoch == 0 and self.fences:  # of an unmodified client: nothing guards its effects
            self.texts.add(message.body.decode())
            return True
        if not self.raise_fence(queue, epoch):
            self.findings.saw("effects fenced")
            return False
        text, offset = message.body.decode(), message.queue_offset
        if text in self._void:
            self.texts.add(text)
            return True
        scope, effect = (queue, message.sharding_key), _Effect(offset, epoch, process)
        last = self._last.get(scope)
        if text not in self.texts and offset < self._highest.get(scope, -1):
            text = f"{queue} key {scope[1]}: {effect}, handled for the first time after offset {self._highest[scope]}"
            self.findings.add(Wrong.EFFECT_OUT_OF_ORDER, text, queue=place_of(queue))
        elif epoch and last is not None and offset <= last.offset and epoch == last.epoch and not self.resets:
            text = f"{queue} key {scope[1]}: {effect} after {last}"
            self.findings.add(Wrong.EFFECT_AGAIN, text, queue=place_of(queue))
        self._highest[scope] = max(offset, self._highest.get(scope, -1))
        self._last[scope] = effect
        self.texts.add(text)
        return True

    @property
    def has_lost_log(self) -> bool:
        """Whether a broker came back without some of its messages."""
        return bool(self._void)

    def is_void(self, text: str) -> bool:
        """Whether a broker came back without this message."""
        return text in self._void

    def log_lost(self, texts: set[str]) -> None:
        """A broker came back without these messages: their offsets are given to others."""
        self._void |= texts
        self._last.clear()
        self._highest.clear()
