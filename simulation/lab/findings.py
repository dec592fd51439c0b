"""What went wrong in a world, and what happened in it at least once."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.order import Kind, Record
from lockstep.simulation.lab.setup import FaultEvent
from lockstep.simulation.virtual_time.loop import START_NS
from lockstep.simulation.world import World

__all__ = ["FENCED_OUT", "Band", "Finding", "Findings", "Idle", "Wrong", "place_of", "queue_of", "time_of"]


class Wrong(StrEnum):
    """The kinds of violations that the lab sees for itself; the judge of order adds its own."""

    STALE_PULL = "stale-pull"  # the broker served a pull of a period that another owner's has followed
    STALE_COMMIT = "stale-commit-stored"
    STALE_SEND_BACK = "stale-send-back"
    STALE_RENEWAL = "stale-renewal"  # the broker renewed a lock under an old epoch
    WITHOUT_EPOCH = "without-epoch"  # the broker took a request of a fenced client that had no epoch
    SHARED_EPOCH = "shared-epoch"  # two clients were granted a queue under one epoch
    EPOCH_BACK = "epoch-back"
    EPOCH_OF_RENEWAL = "epoch-of-renewal"  # a renewal in time began a new epoch
    GRANTED_EARLY = "granted-early"  # before the last period was over, by lease, unlock or lock delay
    LOCK_FORGOTTEN = "lock-forgotten"  # the same, after a restart: RocketMQ keeps no locks
    UNLOCKED_UNDER_CALL = "unlocked-under-call"  # a planned handover while a call ran
    NOT_DRAINED = "not-drained"  # a planned handover before all that was handled was committed
    RESET_UNDONE = "reset-undone"  # an administrator's reset was not stored, or a commit was stored over it
    OFFSETS_FORGOTTEN = "offsets-forgotten"  # the broker ended and came back, with another offset than it had stored
    LATE_CALL = "late-call"  # a call began after its lease had ended
    BEFORE_ACQUIRED = "before-acquired"  # a call began in a period whose on_acquired has not returned
    TRUSTED_TOO_LONG = "trusted-too-long"  # a call began in time, but later than a client may trust its lock
    TWO_CALLS = "two-calls"  # one process ran two calls at once on one queue; by key: of one key
    WORK_AFTER_CALL = "work-after-call"  # a call returned while work that it had started went on
    OVERLAP = "overlap"  # calls of two processes ran at once on one queue
    EFFECT_OUT_OF_ORDER = "effect-out-of-order"
    EFFECT_AGAIN = "effect-again"  # twice in one period, although it had succeeded
    EFFECT_LEFT_OUT = "effect-left-out"  # a message came again, and what had followed it did not
    TWO_HOLDERS = "two-holders"  # a message was delivered while another member held one of its key
    PASSED_OVER = "passed-over"  # a message was delivered, and an earlier one of its key is not acknowledged
    GIVEN_BEHIND = "given-behind"  # a message was delivered, and a later one of its key is acknowledged
    ACKED_AGAIN = "acked-again"  # a message was delivered again although it is acknowledged
    STALE_ACK = "stale-ack"  # the broker took an answer to a delivery that another one has followed
    REFUSED_IN_TIME = "refused-in-time"  # it refused one to the newest delivery, whose time was not over
    COMMIT_UNACKED = "commit-unacked"  # an offset was stored, and a message before it is not acknowledged
    COMMIT_BACK = "commit-back"
    COMMIT_BEYOND = "commit-beyond"  # an owner's commit beyond the end of its queue was stored
    LOST = "lost"
    STORED_OUT_OF_ORDER = "stored-out-of-order"  # a message of a key behind one that was sent later
    STORED_LATE = "stored-late"  # after its answer, or that of a message that was sent later
    STORED_TOO_OFTEN = "stored-too-often"  # more often than it was attempted
    REFUSED_AND_STORED = "refused-and-stored"  # the sender was told that it is not stored
    FAILED_WITHOUT_CAUSE = "failed-without-cause"  # a send failed in a world where nothing else goes wrong
    OVERTAKEN = "overtaken"  # a send failed, and one that was called before that is stored behind where it would be
    NOT_STORED = "not-stored"  # a message that the broker had acknowledged
    REQUEST_FAILED = "request-failed"  # a handler of the broker raised
    LATE = "late"  # everything is healed, and a message is handled long after that
    STUCK = "stuck"  # everything is healed, and a message is not handled


FENCED_OUT: Final = frozenset(
    {Kind.OVERLAP, Kind.STALE_REPEAT, Kind.STALE_EPOCH, Kind.STALE_OWNER, Kind.STALE_COMMIT, Kind.COMMIT_REGRESS}
)
"""What the judge finds of calls that outlive their lease: with fenced locks they overlap with those of the next owner,
and a fence keeps their effects out. Their commits stand in their traces, and no broker stores them."""


class Finding(NamedTuple):
    """A violation.

    Args:
        at_ms: virtual, since the start.
        queue: "topic/broker/queue id", where it concerns one.
        evidence: up to two records of traces: a client id, and the number of the record in that client's trace.
    """

    kind: str
    at_ms: int
    text: str
    queue: str = ""
    evidence: tuple[tuple[str, int], ...] = ()


@dataclass
class Band:
    """A fault as it was played. `end_ms` is None while it lasts, and for one that was over at once.

    Args:
        amount: as it is written for the command, such as "250ms"; empty: it has none.
        was_down: the fault ends a process, and it had ended before; it stays down for longer.
    """

    at_ms: int
    end_ms: int | None
    fault: str
    target: str = ""
    other: str = ""
    amount: str = ""
    was_down: bool = False


class Idle(NamedTuple):
    """A fault that was not played, and why it would have had no effect."""

    at_ms: int
    event: FaultEvent
    why: str


@dataclass
class Findings:
    """`wrong` are violations, `sometimes` counts what happened."""

    world: World
    wrong: list[Finding] = field(default_factory=list)
    sometimes: Counter[str] = field(default_factory=Counter)
    bands: list[Band] = field(default_factory=list)
    idle: list[Idle] = field(default_factory=list)

    def add(
        self,
        kind: str,
        text: str,
        *,
        queue: str = "",
        at_ms: int | None = None,
        evidence: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """A violation happened now, or at `at_ms` as the judge of order finds later."""
        self.wrong.append(Finding(kind, self.world.elapsed_ms if at_ms is None else at_ms, text, queue, evidence))
        self.world.record(f"{kind}: {text}")

    def saw(self, name: str) -> None:
        self.sometimes[name] += 1

    def begin(self, fault: str, target: str = "", other: str = "") -> Band:
        """A fault begins. The caller sets the end of the band."""
        self.bands.append(Band(self.world.elapsed_ms, None, fault, target, other))
        return self.bands[-1]


def place_of(queue: MessageQueue) -> str:
    """A queue as a finding names it."""
    return "/".join(map(str, queue))


def queue_of(record: Record) -> MessageQueue | None:
    """The queue of a record of a trace, if it concerns one."""
    return MessageQueue(record["topic"], record["broker"], record["queue_id"]) if "queue_id" in record else None


def time_of(record: Record) -> int:
    """When a record of a trace was written, in virtual ms since the start."""
    return int(record["mono_ns"] - START_NS) // 1_000_000
