"""How long queues stood still and which messages came late, in any lock mode, from records of sends and calls.

A queue stands still while it has a message to handle, and no call that will succeed runs. A message begins in time when
it is stored and the message before it in its queue is handled, as in a run in which nothing happens to anybody; it is
late if it begins over a second later than that.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.simulation.lab.findings import queue_of

__all__ = ["LATE_MS", "Flow", "Rest", "flow_of"]

LATE_MS: Final = 1000
_MS_NS: Final = 1_000_000
_FAILED: Final = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER", "ROLLBACK")
_Stay = tuple[int, int]  # of a message in its queue, or of a call: from, to, in ns


class Rest(NamedTuple):
    """A time in which a queue stood still, in ns of the records' clock."""

    queue: MessageQueue
    begin_ns: int
    end_ns: int

    @property
    def duration_ms(self) -> float:
        return (self.end_ns - self.begin_ns) / _MS_NS


class Flow(NamedTuple):
    """How the messages of a topic went through its queues.

    Args:
        longest: the longest rest of each queue that had a message.
        messages: that were stored.
        late: of these.
    """

    longest: dict[MessageQueue, Rest]
    messages: int
    late: int


class _Message:
    __slots__ = ("begin_ns", "end_ns", "stored_ns")

    def __init__(self) -> None:
        self.stored_ns = self.begin_ns = self.end_ns = -1  # -1: unknown; the two of the first call that succeeded


def flow_of(
    records: Iterable[Record],
    *,
    topic: str,
    group: str,
    until_ns: int,
    since_ns: int = 0,
    emptied_ns: Mapping[str, Sequence[int]] | None = None,
) -> Flow:
    """Look at the records of all producers and members, in any order, on one clock.

    Args:
        until_ns: the end of the run: what is not handled waits until then.
        since_ns: messages from before then, such as while members still joined, do not count.
        emptied_ns: when brokers started again with an empty store, by their names: older messages are gone.
    """
    queues: dict[MessageQueue, dict[object, _Message]] = defaultdict(lambda: defaultdict(_Message))
    for record in records:
        event, queue = record["event"], queue_of(record)
        if event not in ("sent", "handled") or queue is None or queue.topic != topic:
            continue
        name = record.get("msg_id") or record["offset"]
        if event == "sent":
            queues[queue][name].stored_ns = record["mono_ns"]
        elif record["group"] == group and record["status"] not in _FAILED:
            message = queues[queue][name]
            if message.begin_ns < 0 or record["begin_mono_ns"] < message.begin_ns:
                message.begin_ns, message.end_ns = record["begin_mono_ns"], record["mono_ns"]
    longest, count, late = dict[MessageQueue, Rest](), 0, 0
    for queue, table in sorted(queues.items()):
        emptied = (emptied_ns or {}).get(queue.broker_name, ())
        calls = [(message.begin_ns, message.end_ns) for message in table.values() if message.begin_ns >= 0]
        stays = [(_stay(message, until_ns, emptied), message) for message in table.values()]
        counted = [(stay, message) for stay, message in stays if stay[0] >= since_ns]
        if counted:
            rests = _rests(queue, [stay for stay, _ in counted], calls)
            longest[queue] = max(rests, key=lambda rest: rest.end_ns - rest.begin_ns)
        count += len(counted)
        late += _late(counted)
    return Flow(longest, count, late)


def _stay(message: _Message, until_ns: int, emptied_ns: Sequence[int]) -> _Stay:
    """From when to when a message waits for its first call that succeeds. Its call may be before the answer of its
    send, and the answer may be lost."""
    end_ns = message.begin_ns if message.begin_ns >= 0 else until_ns
    begin_ns = end_ns if message.stored_ns < 0 else min(message.stored_ns, end_ns)
    if message.begin_ns < 0:
        end_ns = min([end_ns, *(at_ns for at_ns in emptied_ns if at_ns >= begin_ns)])
    return begin_ns, end_ns


def _rests(queue: MessageQueue, stays: list[_Stay], calls: list[_Stay]) -> Iterable[Rest]:
    """Where a message waits and no call runs; at least an empty one."""
    moments = [(at_ns, 0, change) for begin, end in stays for at_ns, change in ((begin, 1), (end, -1))]
    moments += [(at_ns, change, 0) for begin, end in calls for at_ns, change in ((begin, 1), (end, -1))]
    running = waiting = 0
    began_ns = moments[0][0]
    yield Rest(queue, began_ns, began_ns)
    is_still = False
    for at_ns, call, wait in sorted(moments, key=lambda moment: moment[0]):
        running, waiting = running + call, waiting + wait
        if is_still and (running or not waiting):
            yield Rest(queue, began_ns, at_ns)
            is_still = False
        elif not is_still and waiting and not running:
            began_ns, is_still = at_ns, True


def _late(messages: list[tuple[_Stay, _Message]]) -> int:
    """How many began over LATE_MS later than in a queue whose owner is always there."""
    late, free_ns = 0, 0
    for (stored_ns, begin_ns), message in sorted(messages, key=lambda one: one[0]):
        calm_ns = max(stored_ns, free_ns)
        free_ns = calm_ns + max(message.end_ns - message.begin_ns, 0)
        late += begin_ns - calm_ns > LATE_MS * _MS_NS
    return late
