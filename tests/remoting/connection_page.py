"""Writes docs/connection.md from the tables of `remoting/connections/connection_states.py`: `make connection-page`."""

from collections.abc import Iterator
from itertools import chain

from lockstep.remoting.connections.connection_states import MACHINES, Machine
from tests.tidy.source import ROOT

__all__ = ["PAGE", "page"]

PAGE = ROOT / "docs" / "connection.md"
INTRODUCTION = """\
# The states of a connection

`make connection-page` writes this page from the tables of
[connection_states.py](../remoting/connections/connection_states.py).
[connection.py](../remoting/connections/connection.py) acts by these tables: bytes go in, events and bytes to send come
out, without a socket and without a clock.
[endpoint.py](../remoting/connections/endpoint.py) moves the bytes and the timers on asyncio.

In a table each row is a state, each column an event, and each cell the next state. An empty cell: the two cannot meet.\
"""


def page() -> str:
    """The whole page."""
    return "\n".join(chain([INTRODUCTION], *map(_section, MACHINES))) + "\n"


def _section(machine: Machine) -> Iterator[str]:
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


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written: {PAGE.relative_to(ROOT)}")
