"""Which queues get a row, how a row is called, and how owners are told apart: colour, pattern and number."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.order.page.markup import join, tag
from lockstep.order.page.pieces import COLOURS
from lockstep.order.page.run import Found, JudgedRun, OwnerBar
from lockstep.protocol.model import MessageQueue

__all__ = ["Owner", "Owners", "Rows", "owners_of", "rows_of", "short_client"]

ROWS_MAX: Final = 300
_PATTERNS: Final = ("", "M-2 2L2-2M0 8L8 0M6 10L10 6", "M0 4H8", "M4 0V8", "M0 4H8M4 0V8")
Name = tuple[str, MessageQueue]  # group and queue


class Owner(NamedTuple):
    """A client: its number, its name in the legend, and the fill of its bars."""

    number: int
    name: str
    fill: str
    colour: int
    pattern: int


class Owners(NamedTuple):
    """All owners of a run. `defs`: the patterns that their fills use."""

    by_client: Mapping[str, Owner]
    defs: Markup | None


class Rows(NamedTuple):
    """The rows of the plot of owners: names, bars and findings by queue."""

    names: Mapping[Name, str]
    bars: Mapping[Name, Sequence[OwnerBar]]
    found: Mapping[Name, Sequence[Found]]
    note: str
    left_out: int
    bars_left_out: int


def short_client(client_id: str) -> str:
    """Host and process of a client id: "10.0.0.7@4711" of "10.0.0.7@4711#3"."""
    return client_id.partition("#")[0] or client_id


def owners_of(run: JudgedRun) -> Owners:
    """A number, a colour and a pattern for each client, by name. 40 differ by colour and pattern."""
    clients = sorted({bar.client_id for bar in run.owners})
    shorts = [short_client(client) for client in clients]
    found, patterns = {}, {}
    for number, (client, short) in enumerate(zip(clients, shorts, strict=True)):
        colour, pattern = number % COLOURS + 1, number // COLOURS % len(_PATTERNS)
        fill = f"url(#o{colour}p{pattern})" if pattern else f"var(--series-{colour})"
        if pattern:
            patterns[colour, pattern] = _pattern(colour, pattern)
        name = short if shorts.count(short) == 1 else client
        found[client] = Owner(number + 1, name, fill, colour, pattern)
    if not patterns:
        return Owners(found, None)
    defs = tag("svg", tag("defs", *patterns.values()), width=0, height=0, class_="defs", aria_hidden="true")
    return Owners(found, defs)


def _pattern(colour: int, pattern: int) -> Markup:
    shapes = join(
        tag("rect", width=8, height=8, fill=f"var(--series-{colour})"),
        tag("path", d=_PATTERNS[pattern], class_="hatch"),
    )
    return tag("pattern", shapes, id=f"o{colour}p{pattern}", width=8, height=8, patternUnits="userSpaceOnUse")


def rows_of(run: JudgedRun) -> Rows:
    """The queues in the order of their names; if they are too many, those with findings first."""
    bars: dict[Name, list[OwnerBar]] = {}
    for bar in run.owners:
        bars.setdefault((bar.group, bar.queue), []).append(bar)
    found: dict[Name, list[Found]] = {}
    for one in run.found:
        for name in dict.fromkeys(_name_of(record) for record in one.violation.evidence):
            if name is not None and name in bars:
                found.setdefault(name, []).append(one)
    chosen = sorted(sorted(bars, key=_sort_key), key=lambda name: name not in found)[:ROWS_MAX]
    chosen.sort(key=_sort_key)
    names, note = _short_names(chosen)
    left_out = sum(len(more) for name, more in bars.items() if name not in names)
    return Rows(names, bars, found, note, len(bars) - len(chosen), left_out)


def _name_of(record: Mapping[str, object]) -> Name | None:
    topic, broker, queue_id = record.get("topic"), record.get("broker"), record.get("queue_id")
    if not (isinstance(topic, str) and isinstance(broker, str) and isinstance(queue_id, int)):
        return None
    return str(record.get("group", "")), MessageQueue(topic, broker, queue_id)


def _sort_key(name: Name) -> tuple[str, str, str, int]:
    group, queue = name
    return group, queue.topic, queue.broker_name, queue.queue_id


def _short_names(names: Sequence[Name]) -> tuple[dict[Name, str], str]:
    """A name for each row without the parts that all rows share, and a note with those parts."""
    parts = {
        "group": [name[0] for name in names],
        "topic": [name[1].topic for name in names],
        "broker": [name[1].broker_name for name in names],
    }
    shared = {word: values[0] for word, values in parts.items() if len(set(values)) == 1}
    found = {}
    for place, name in enumerate(names):
        words = [values[place] for word, values in parts.items() if word not in shared]
        found[name] = " ".join([*words, str(name[1].queue_id)]) if words else f"queue {name[1].queue_id}"
    note = ", ".join(f"{word} {value}" for word, value in shared.items())
    return found, f"All of {note}." if note else ""
