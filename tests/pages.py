"""The pages that programs write into build/docs: `python -m tests.pages`, or `make docs`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from itertools import chain
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.ownership.fenced import states as fence_states
from lockstep.client import ClientConfig, ConsumerConfig, LitePullConsumerConfig, ProducerConfig, PullConsumerConfig
from lockstep.client.consumer.ownership import lock_states
from lockstep.client.consumer.ownership.period_end import CAUSES
from lockstep.client.diagnosis.rules import RULES, Severity
from lockstep.order.kinds import kinds_table
from lockstep.order.traces.format import trace_page
from lockstep.remoting.connections.connection_states import MACHINES, Machine
from lockstep.simulation.articles.play import narration_text
from lockstep.simulation.articles.registry import SECTIONS, find_section
from lockstep.simulation.museum.pages import document
from tests.broker.acl.page import permissions
from tests.mutants.found import protections
from tests.tidy.drawing import drawing
from tests.tidy.source import ROOT

__all__ = ["PAGES"]

_ARTICLES: Final = """\
# The articles live

Each section of the five articles, told as a story on virtual time by `lockstep-sim article SECTION`. A line with `|` is
a change of a table: before -> after. `cached` are offsets that wait in a ProcessQueue, `taken` those that the listener
has and that are not committed, `offset` is the next one to commit.

| section | title | what it says | what the story shows |
|---|---|---|---|\
"""
_STORIES: Final = ("1/2.2.2", "4/3.2")
_CONNECTION: Final = """\
# The states of a connection

From the tables of remoting/connections/connection_states.py, by which connection.py acts: bytes go in, events and bytes
to send come out, without a socket and without a clock. Each row is a state, each column an event, each cell the next
state. An empty cell: the two cannot meet.\
"""


def articles() -> str:
    """All sections in a table, and two stories."""
    lines = [_ARTICLES]
    lines += [f"| `{one.id}` | {one.title} | {one.summary} | {one.story_text or '-'} |" for one in SECTIONS]
    for name in _STORIES:
        lines += [f"\n## `lockstep-sim article {name}`\n\n```text", *narration_text(find_section(name)), "```"]
    return "\n".join(lines) + "\n"


def connection() -> str:
    """Each machine as a diagram and as a table."""
    return "\n".join(chain([_CONNECTION], *map(_machine, MACHINES))) + "\n"


def _machine(machine: Machine) -> Iterator[str]:
    yield f"\n## {machine.title}\n\n{machine.meaning}\n\n```mermaid\nstateDiagram-v2"
    names = {state: state.replace("-", "_") for state in machine.table}
    yield from (f'    state "{state}" as {name}' for state, name in names.items() if name != state)
    yield from (f"    [*] --> {names[start]}" for start in machine.starts)
    for state, row in machine.table.items():
        arrows: dict[str, list[str]] = {}
        for event, after in row.items():
            if after != state:
                arrows.setdefault(names[after], []).append(event)
        yield from (f"    {names[state]} --> {after}: {', '.join(events)}" for after, events in arrows.items())
    events = list(dict.fromkeys(event for row in machine.table.values() for event in row))
    yield f"```\n\n| state | {' | '.join(events)} |\n|{'---|' * (len(events) + 1)}"
    for state, row in machine.table.items():
        yield f"| **{state}** | {' | '.join(row.get(event, '') for event in events)} |"


def locks() -> str:
    """What a consumer and what a broker knows of the lock of one queue: states, events and all transitions."""
    return "\n".join(["# The lock of one queue", *_consumer_lock(), *_period_end(), *_broker_lock()]) + "\n"


def _consumer_lock() -> Iterator[str]:
    yield "\n## At a consumer"
    for kind in (lock_states.LockState, lock_states.LockEvent, lock_states.LockAction):
        yield from _meanings(kind)
    yield "\n| state | event | next | does |\n|---|---|---|---|"
    for (state, event), row in lock_states.TRANSITIONS.items():
        yield f"| {state.name} | {event.name} | {row.state.name} | {', '.join(one.name for one in row.actions)} |"


def _period_end() -> Iterator[str]:
    yield "\n## The end of a period under a fenced lock"
    yield "\n| cause | the running calls | the offset | the lock | then |\n|---|---|---|---|---|"
    for cause, end in CAUSES.items():
        calls = "are cancelled" if end.cancels else "end"
        offset = "is stored under the epoch" if end.stores else "is not stored"
        lock = "is unlocked under the epoch" if end.unlocks else "is left alone"
        then = "rebalances at once" if end.asks else "waits for the release, or the next rebalance"
        yield f"| `{cause.name}`: {cause.value} | {calls} | {offset} | {lock} | {then} |"


def _broker_lock() -> Iterator[str]:
    yield "\n## At a broker with fenced locks"
    for kind in (fence_states.LockState, fence_states.LockEvent):
        yield from _meanings(kind)
    yield "\n| state | event | next | the period ends: |\n|---|---|---|---|"
    for (state, event), row in fence_states.TRANSITIONS.items():
        yield f"| {state.name} | {event.name} | {row.state.name} | {row.cause.value if row.cause else ''} |"


def _meanings(kind: type[Enum]) -> Iterator[str]:
    yield f"\n| {kind.__name__.removeprefix('Lock').lower()} | meaning |\n|---|---|"
    yield from (f"| `{one.name}` | {one.value} |" for one in kind)


def settings() -> str:
    """Each setting of the broker and of each client, with RocketMQ's name of it and its default."""
    kinds: dict[str, tuple[Any, ...]] = {
        "broker": (BrokerConfig, ()),
        "each client": (ClientConfig, ()),
        "producer": (ProducerConfig, fields(ClientConfig)),
        "push": (ConsumerConfig, fields(ClientConfig)),
        "pull, lite": (PullConsumerConfig, fields(ClientConfig)),
        "lite": (LitePullConsumerConfig, fields(PullConsumerConfig)),
    }
    lines = ["# Settings\n", "| whose | setting | RocketMQ | default |", "|---|---|---|---|"]
    for kind, (config, inherited) in kinds.items():
        known = {field.name for field in inherited}
        for field in (one for one in fields(config) if one.name not in known):
            theirs, default = field.metadata.get("property"), getattr(field.default, "name", repr(field.default))
            lines.append(f"| {kind} | `{field.name}` | {f'`{theirs}`' if theirs else '-'} | {default} |")
    return "\n".join(lines) + "\n"


def kinds() -> str:
    """What the judge may find: the rule of each kind, the evidence and how sure it is."""
    return f"# The kinds of findings\n\n{kinds_table()}"


def doctor() -> str:
    """Each rule of `lockstep doctor` with its severity and what follows."""
    words = {Severity.WARNING: "warning", Severity.BREAKS_ORDER: "breaks"}
    lines = ["# The rules of the doctor\n", "| rule | severity | consequence |", "|---|---|---|"]
    lines += [f"| `{name}` | {words[rule.severity]} | {rule.consequence} |" for name, rule in RULES.items()]
    return "\n".join(lines) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "articles.md": articles,
    "connection.md": connection,
    "doctor.md": doctor,
    "kinds.md": kinds,
    "lock-states.md": locks,
    "museum.md": document,
    "permissions.md": permissions,
    "protections.md": protections,
    "rooms.html": drawing,
    "settings.md": settings,
    "trace.md": trace_page,
}


def main() -> None:
    folder = ROOT / "build" / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
        print(f"written: build/docs/{name}")


if __name__ == "__main__":
    main()
