"""Sentences of lines of the log: what is alike, and close in time, is one sentence about several queues."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.event_texts import EVENT_TEXTS, EventText
from lockstep.simulation.lab.names import Names
from lockstep.simulation.lab.said import Said, say

__all__ = ["LogSentence", "LogSentences", "listed", "queue_numbers"]

_TOGETHER_MS: Final = 1500  # what one rebalance does
_SELDOM_MS: Final = 60_000  # a client asks again every 20 s
_NEVER_MS: Final = -(10**9)
_RANGE_MIN: Final = 4  # numbers in a row


class LogSentence(NamedTuple):
    """A sentence about lines of one event, one who acts and one other. The first one gives the fields of the text."""

    text: Said
    lines: Sequence[LogLine]

    @property
    def first(self) -> LogLine:
        return self.lines[0]

    @property
    def at_ms(self) -> int:
        return self.first.at_ms


class LogSentences:
    """Makes sentences. It knows what was told before: what is told seldom is not repeated within a minute, if it
    is about the same queues.

    Args:
        text_of: which text of an event is told.
    """

    def __init__(self, cluster: Cluster, text_of: Callable[[EventText], str]) -> None:
        self._names = Names(cluster.world, cluster)
        self._text_of = text_of
        self._last: dict[tuple[object, ...], int] = {}

    def of(self, lines: Iterable[LogLine]) -> Iterator[LogSentence]:
        """The sentences of lines in order of time, each of an event that has the text."""
        for some in _together(lines):
            groups: dict[tuple[object, ...], list[LogLine]] = {}
            for line in some:
                groups.setdefault(_same(line), []).append(line)
            for key, alike in groups.items():
                row, first = EVENT_TEXTS[alike[0].event], alike[0]
                if row.seldom:
                    of_queues = (*key, frozenset(line.fields.get("queue") for line in alike))
                    if first.at_ms - self._last.get(of_queues, _NEVER_MS) < _SELDOM_MS:
                        continue
                    self._last[of_queues] = first.at_ms
                yield LogSentence(self._sentence(self._text_of(row), alike), alike)

    def _sentence(self, text: str, alike: Sequence[LogLine]) -> Said:
        fields, who = alike[0].fields, self.who(alike[0])
        other = self._host(fields.get("from_client_id", fields.get("owner")))
        words: dict[str, Any] = {name: self._names.in_text(str(value)) for name, value in fields.items()}
        words |= {
            "who": who,
            "other": other if other != who else say("an earlier process of {who}", who=who),
            "queues": _queues(alike),
            "share": _share(str(fields.get("share_after", ""))),
            "age": f"{fields.get('age_ms', 0) / 1000:.1f} s",
            "why": fields.get("why"),
        }
        return say(text, **words)

    def who(self, line: LogLine) -> str:
        """The client that a line is about, or the host that logged it."""
        client = line.fields.get("client_id") or str(line.fields.get("peer", "")).rpartition(":")[0]
        return self._host(client) if client else line.host

    def _host(self, client_id: object) -> str:
        return self._names.in_text(str(client_id))


def _same(line: LogLine) -> tuple[object, ...]:
    fields = line.fields
    who = fields.get("client_id", fields.get("peer", line.host))
    return line.event, who, fields.get("from_client_id", fields.get("owner")), fields.get("why")


def _together(lines: Iterable[LogLine]) -> Iterator[list[LogLine]]:
    """What happened within a moment."""
    some: list[LogLine] = []
    for line in lines:
        if some and line.at_ms - some[0].at_ms > _TOGETHER_MS:
            yield some
            some = []
        some.append(line)
    if some:
        yield some


def _queues(lines: Sequence[LogLine]) -> str:
    """ "queue 1", "queues 0, 2 and 5", "queues 0 to 7": the topic has one name, and mostly one broker."""
    texts = {str(line.fields["queue"]).partition("@")[2] for line in lines if "queue" in line.fields}
    return queue_numbers(texts, ":")


def _share(text: str) -> str:
    """The same for `BROKER:QUEUE_ID BROKER:QUEUE_ID`."""
    return queue_numbers(set(text.split()), ":") if text else "no queue"


def queue_numbers(names: set[str], sign: str) -> str:
    """Words for queues as broker, sign and number; those of one broker by their numbers."""
    by_broker: dict[str, list[int]] = {}
    for name in names:
        broker, _, number = name.rpartition(sign)
        by_broker.setdefault(broker, []).append(int(number) if number.isdigit() else 0)
    parts = [
        run if len(by_broker) == 1 else say("{broker}{sign}{run}", broker=broker, sign=sign, run=run)
        for broker in sorted(by_broker)
        for run in _runs(sorted(by_broker[broker]))
    ]
    return say("queues {listed}" if len(names) > 1 else "queue {listed}", listed=listed(parts))


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    some = parts[0] if parts else ""
    for part in parts[1:-1]:
        some = say("{some}, {more}", some=some, more=part)
    return say("{some} and {last}", some=some, last=parts[-1]) if len(parts) > 1 else some


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    """ "0 to 7" for many in a row, each for itself else."""
    run: list[int] = []
    for number in [*numbers, None]:
        if number is not None and (not run or number == run[-1] + 1):
            run.append(number)
            continue
        if len(run) >= _RANGE_MIN:
            yield say("{first} to {last}", first=run[0], last=run[-1])
        else:
            yield from map(str, run)
        run = [] if number is None else [number]
