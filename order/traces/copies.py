"""Records that were delivered twice: a file under two names, a line twice, a part of a file again.

A process never writes two equal records: `mono_ns` counts nanoseconds. So a record that equals another one in all its
fields, machine, boot and `mono_ns` among them, is a copy. Of records without `mono_ns` this is not known: all are kept.
"""

from lockstep.order.traces.reader import Record

__all__ = ["Copies"]


class Copies:
    """Finds copies among records that come in the order of time, of a whole history or of one queue after the other.

    Attributes:
        count: Copies so far.
        one_process: (client, source, source): two traces with copies of one record of a client. Both were delivered
            of one process.
    """

    def __init__(self) -> None:
        self.count = 0
        self.one_process: set[tuple[str, int, int]] = set()
        self._at_ns: int | None = None
        self._first: tuple[int, Record] = (0, {})
        self._of_now: dict[tuple[object, ...], list[tuple[int, Record]]] = {}  # empty: only `_first` has this time

    def has(self, time_ns: int, source: int, record: Record) -> bool:
        """Whether the next record is a copy; it is counted."""
        if time_ns != self._at_ns:
            self._at_ns, self._first = time_ns, (source, record)
            if self._of_now:
                self._of_now = {}
            return False
        if not self._of_now:
            self._of_now[_name(self._first[1])] = [self._first]
        known = self._of_now.setdefault(_name(record), [])
        for other_source, other in known:
            if other == record and "mono_ns" in record:
                self.count += 1
                if other_source != source and "client_id" in record:
                    self.one_process.add((record["client_id"], other_source, source))
                return True
        known.append((source, record))
        return False


def _name(record: Record) -> tuple[object, ...]:
    """What most records of one nanosecond differ in."""
    return record["event"], record.get("client_id"), record.get("queue_id"), record.get("offset"), record.get("msg_id")
