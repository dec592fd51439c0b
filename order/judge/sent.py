"""Compares sent and handled messages of one queue in one store: each offset must have the same message id in both.

The digest of each sent id is kept (eight bytes a message). A handled message waits here until its `sent` record comes.
"""

from array import array
from collections.abc import Container
from typing import Final, NamedTuple

from lockstep.order.kinds import Confidence, Kind
from lockstep.order.offset_set import OffsetSet
from lockstep.order.report import Findings
from lockstep.order.traces.reader import Record

__all__ = ["SentQueue", "UnsentMessages", "digest"]

# Handled messages of one queue that wait for their `sent` record.
_WAITING_MAX: Final = 1000
_KEPT_MAX: Final = 100
_GAP_MAX: Final = 10_000
# Share of compared ids: if more differ, producers use ids differently; these are no wrong messages.
_OFTEN: Final = 0.2
# Share of sent messages: if more are unknown, the trace of a producer is missing.
_UNSENT_SHARE_MAX: Final = 0.02


def digest(text: str) -> int:
    """Hash an id to a number other than 0. Digests are comparable only within one process."""
    return hash(text) or 1


class SentQueue:
    """The sends to one queue in one store. `offsets` holds the offsets that brokers answered to producers."""

    def __init__(self) -> None:
        self.offsets = OffsetSet()
        self.compares = True  # whether ids of handled messages are compared
        self._base = -1
        self._digests = array("q")
        self._strays: dict[int, int] = {}
        self._waiting: dict[tuple[str, int], Record] = {}
        self._groups: dict[str, None] = {}  # of records that wait or waited: few, so a send looks at no other record
        self.displaced: set[int] = set()  # digests of different ids that were sent to the same offset
        self._gave_up = False
        self._compared = 0
        self._wrong: list[tuple[Record, int]] = []
        self._wrong_count = 0

    def sent(self, record: Record) -> None:
        """Take a `sent` record: the broker answered a send."""
        offset = record["offset"]
        self.offsets.add(offset)
        msg_id = record.get("msg_id")
        number = digest(msg_id) if msg_id is not None else 0
        self._keep(offset, number)
        if self._waiting and number:
            for group in self._groups:
                waiting = self._waiting.pop((group, offset), None)
                if waiting is not None:
                    self._compare(waiting, number)

    def handled(self, group: str, record: Record, offset: int, number: int) -> None:
        """Take the first `handled` record of an offset in a group. `number` is the digest of its id."""
        known = self.id_at(offset)
        if not self.compares:
            return
        if known:
            self._compared += 1
            if known != number:
                self._note_wrong(record, offset)
        elif offset not in self.offsets and not self._gave_up:
            if len(self._waiting) >= _WAITING_MAX:
                self._waiting.clear()
                self._gave_up = True
            else:
                self._waiting[group, offset] = record
                self._groups[group] = None

    def repeated(self, group: str, record: Record, offset: int) -> None:
        """Take another `handled` record of an offset."""
        msg_id = record.get("msg_id")
        if not self.compares or msg_id is None:
            return
        known, waiting = self.id_at(offset), self._waiting.get((group, offset))
        if known:
            self._compared += 1
            if known != digest(msg_id):
                self._note_wrong(record, offset)
        elif waiting is not None and waiting["msg_id"] != msg_id:
            # One of the two is wrong: both wait for the send.
            self._waiting[f"{group} again", offset] = record
            self._groups[f"{group} again"] = None

    def id_at(self, offset: int) -> int:
        """The digest of the id that was sent to an offset; 0 if it is unknown."""
        place = offset - self._base
        if 0 <= place < len(self._digests) and self._digests[place]:
            return self._digests[place]
        return self._strays.get(offset, 0)

    def _keep(self, offset: int, number: int) -> None:
        if self._base < 0:
            self._base = offset
        place = offset - self._base
        missing = place - len(self._digests)
        if missing == 0:
            self._digests.append(number)
        elif 0 <= place < len(self._digests):
            known = self._digests[place]
            if known and known != number:
                # A delayed message: its `sent` offset belongs to another queue.
                self.displaced |= {known, number}
                number = 0
            self._digests[place] = number
        elif 0 < missing <= _GAP_MAX:
            self._digests.extend([0] * missing)
            self._digests.append(number)
        else:
            self._strays[offset] = number

    def _compare(self, record: Record, number: int) -> None:
        self._compared += 1
        if digest(record["msg_id"]) != number:
            self._note_wrong(record, record["offset"])

    def _note_wrong(self, record: Record, offset: int) -> None:
        self._wrong_count += 1
        if len(self._wrong) < _KEPT_MAX:
            self._wrong.append((record, offset))

    def sent_of(self, wanted: set[int]) -> set[int]:
        """The digests of `wanted` that were sent to this queue, at any offset."""
        found = wanted.intersection(self._digests) | wanted.intersection(self._strays.values())
        return found | (wanted & self.displaced)

    def finish(self, findings: Findings, unseen: list[str]) -> "UnsentMessages | None":
        """Report handled messages with a wrong id. Returns those that no producer sent, if there are any.

        Args:
            findings: Receives the violations.
            unseen: Receives sentences about what these traces cannot show.
        """
        if not self.offsets:
            return None
        if self._wrong_count > max(3, _OFTEN * self._compared):
            record = self._wrong[0][0]
            unseen.append(
                f"{_queue(record)}: sent and handled ids differ at {self._wrong_count:,} of {self._compared:,} "
                "offsets, as if ids meant something else to producers: they are not compared"
            )
        else:
            for record, offset in self._wrong:
                text = f"offset {offset} of {_queue(record)} was handled as {record['msg_id']}: not what was sent there"
                findings.violation(Kind.WRONG_MESSAGE, text, record)
        records = [
            record
            for (_, offset), record in self._waiting.items()
            if offset >= self.offsets.start and offset not in self.offsets
        ]
        if not records and not self._gave_up:
            return None
        return UnsentMessages(records, len(self.offsets), self.offsets.end, self._gave_up)


class UnsentMessages(NamedTuple):
    """The handled messages of one queue and store whose offsets no `sent` record names. `gave_up`: too many to keep."""

    records: list[Record]
    sent_count: int
    sent_end: int
    gave_up: bool

    def judge(self, explained: Container[str], findings: Findings, unseen: list[str], *, all_closed: bool) -> None:
        """Report those that no producer sent.

        Args:
            explained: The ids that may be stored without an answer: of failed sends, of repeated messages, and of
                delayed messages, whose `sent` records name another offset.
            findings: Receives the violations.
            unseen: Receives sentences about what these traces cannot show.
            all_closed: Whether every producer closed its trace in an orderly shutdown: then no send is missing.
        """
        unsent_messages = [record for record in self.records if record["msg_id"] not in explained]
        if not unsent_messages and not self.gave_up:
            return
        if self.gave_up or len(unsent_messages) > max(3, _UNSENT_SHARE_MAX * self.sent_count):
            queue = f"{_queue(unsent_messages[0])}: " if unsent_messages else ""
            unseen.append(f"{queue}many messages were handled that no producer trace names: those traces are not whole")
            return
        tail = self.sent_end
        for record in sorted(unsent_messages, key=lambda one: one["offset"]):
            if record["offset"] == tail:
                # A killed producer may have sent the messages directly after the last answered send.
                tail += 1
        for record in unsent_messages:
            offset = record["offset"]
            doubtful = self.sent_end <= offset < tail and not all_closed
            text = "; a producer that was killed may have sent it" if doubtful else ""
            findings.violation(
                Kind.NEVER_SENT,
                f"offset {offset} of {_queue(record)} was handled as {record['msg_id']}, and no producer sent it{text}",
                record,
                confidence=Confidence.UNDECIDED if doubtful else Confidence.LIKELY,
            )


def _queue(record: Record) -> str:
    return f"{record['topic']}@{record['broker']}:{record['queue_id']}"
