"""The rules of order as data: each kind of finding with its rule, its sentence and the evidence it needs."""

from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["PROVED_WITH_GAPS", "RULES", "Cause", "Confidence", "Kind", "Rule", "kinds_table"]


class Kind(StrEnum):
    """The kinds of findings. A kind that Jepsen's Kafka workload also knows has Jepsen's name."""

    NONMONOTONIC_POLL = "nonmonotonic-poll"
    UNEXPLAINED_REPEAT = "unexplained-repeat"
    STALE_REPEAT = "stale-repeat"
    REWIND_BELOW_COMMIT = "rewind-below-commit"
    POLL_SKIP = "poll-skip"
    OVERLAP = "overlap"
    STALE_OWNER = "stale-owner"
    CONCURRENT_CALLS = "concurrent-calls"
    ENDS_BEFORE_BEGIN = "ends-before-begin"
    NO_GRANT = "no-grant"
    TWO_GRANTS = "two-grants"
    STALE_EPOCH = "stale-epoch"
    SHARED_CLIENT_ID = "shared-client-id"
    LOST_WRITE = "lost-write"
    COMMIT_REGRESS = "commit-regress"
    STALE_COMMIT = "stale-commit"
    STORED_REGRESS = "stored-regress"
    COMMIT_UNHANDLED = "commit-unhandled"
    COMMIT_BEYOND_END = "commit-beyond-end"
    REPEATED_ID = "repeated-id"
    WRONG_MESSAGE = "wrong-message"
    NEVER_SENT = "never-sent"
    KEY_IN_TWO_QUEUES = "key-in-two-queues"


PROVED_WITH_GAPS: Final = frozenset({
    Kind.STALE_REPEAT, Kind.OVERLAP, Kind.STALE_OWNER, Kind.CONCURRENT_CALLS, Kind.ENDS_BEFORE_BEGIN,
    Kind.SHARED_CLIENT_ID, Kind.KEY_IN_TWO_QUEUES,
})  # fmt: skip
"""Kinds that the records of a finding prove alone. Another kind may be explained by a record that could not be read."""


class Cause(StrEnum):
    """Why a message was handled more than once."""

    TAKEOVER = "takeover"
    SUSPEND = "suspend"
    RESET = "reset"
    REDELIVERED = "redelivered"  # to a group that pops, although it was acknowledged
    PRODUCER_RETRY = "producer retry"
    UNEXPLAINED = "unexplained"  # part of a repeat that is reported as a violation


class Confidence(StrEnum):
    """How sure a finding is."""

    CERTAIN = "certain"  # proved: by one clock, one file, or causes
    LIKELY = "likely"  # needs an assumption, which the finding names
    UNDECIDED = "undecided"  # the records neither prove nor exclude it


class Rule(NamedTuple):
    """The meaning of a kind, and the evidence that it needs."""

    letter: str  # of the rule in docs/order.md, part 1
    sentence: str
    needs: str
    confidence: str


RULES: Final[dict[Kind, Rule]] = {
    Kind.NONMONOTONIC_POLL: Rule("a", "A message of a key was handled for the first time after a later one of that key.", "handled", "certain within a period or on one clock"),
    Kind.UNEXPLAINED_REPEAT: Rule("b", "A message was handled again in one period, and no attempt had failed.", "handled", "certain"),
    Kind.STALE_REPEAT: Rule("b", "A period that a newer one had replaced repeated a message.", "handled, acquired", "certain on one clock, else by bounds"),
    Kind.REWIND_BELOW_COMMIT: Rule("b", "A new period began below the last stored commit.", "committed, positioned; stored where there is one", "undecided if the broker may have lost the last commits, or an administrator moved the offset"),
    Kind.POLL_SKIP: Rule("b", "A repeat left out messages that had been handled.", "handled", "certain"),
    Kind.OVERLAP: Rule("c", "Two owners handled one queue at the same time.", "handled with begin_mono_ns", "certain on one clock, else by bounds"),
    Kind.STALE_OWNER: Rule("c", "A call began after its period was dropped, lost or replaced.", "handled with begin_mono_ns; dropped, lock_lost or the next acquired", "certain on one clock, else by bounds"),
    Kind.CONCURRENT_CALLS: Rule("c", "Two calls of one queue (by key: of one key) ran at once inside one period.", "handled with begin_mono_ns", "certain"),
    Kind.ENDS_BEFORE_BEGIN: Rule("c", "A call ended before it began.", "handled with begin_mono_ns", "certain"),
    Kind.NO_GRANT: Rule("c", "A period handled messages without a grant of the lock.", "acquired, handled", "undecided where the trace may begin in the middle of a period"),
    Kind.TWO_GRANTS: Rule("c", "A period took its position after a newer period of another client was granted, or two clients had one epoch.", "acquired, positioned; epoch", "certain on one clock"),
    Kind.STALE_EPOCH: Rule("c", "Something happened under an epoch after a later epoch was granted.", "epoch", "certain on one clock, else by bounds"),
    Kind.SHARED_CLIENT_ID: Rule("c", "Two processes used one client id at the same time.", "traces of both processes", "certain on one clock, else by bounds"),
    Kind.LOST_WRITE: Rule("d", "A message below a committed offset was never handled.", "handled, committed; sent where there is one", "certain with whole traces"),
    Kind.COMMIT_REGRESS: Rule("d", "A commit went back without a reset.", "committed", "certain on one clock"),
    Kind.STALE_COMMIT: Rule("d", "A commit went back, and an owner whose period was over had sent one of the two.", "committed, positioned", "certain on one clock"),
    Kind.STORED_REGRESS: Rule("d", "The stored offset went back without a reset.", "stored", "certain on one clock, else by bounds"),
    Kind.COMMIT_UNHANDLED: Rule("d", "An offset was committed before the messages below it were handled.", "committed, handled", "certain"),
    Kind.COMMIT_BEYOND_END: Rule("d", "An offset was committed beyond the end of the queue.", "committed, sent", "certain with whole producer traces"),
    Kind.REPEATED_ID: Rule("d", "One message id is at two offsets, and it is no retry of a producer.", "msg_id, key; sent", "certain"),
    Kind.WRONG_MESSAGE: Rule("d", "The message handled at an offset is not the one that was sent there.", "sent, handled with msg_id", "certain"),
    Kind.NEVER_SENT: Rule("d", "A message was handled that no producer sent.", "sent of every producer", "likely; undecided at the end of a queue"),
    Kind.KEY_IN_TWO_QUEUES: Rule("a", "Messages of one key are in two queues, and the number of queues did not change.", "handled with key", "likely"),
}  # fmt: skip


def kinds_table() -> str:
    """The table of kinds, in Markdown."""
    lines = ["| kind | rule | what it means | from | confidence |", "|---|---|---|---|---|"]
    lines += [
        f"| `{kind}` | {rule.letter} | {rule.sentence} | {rule.needs} | {rule.confidence} |"
        for kind, rule in RULES.items()
    ]
    return "\n".join(lines) + "\n"
