"""The first law inside a package: its rooms, and the files beside them, import one way too.

A room is a folder. Every import counts: one inside a function, and one for the type checker alone, since who reads one
of two rooms that name each other must read both.
"""

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from tests.tidy.source import Source, imported_modules, programs, report

# Room or file -> those of the same folder that it imports, with one line that does so.
Arrows = dict[str, dict[str, tuple[Source, int]]]

# The arrows that go back today. Strike those that are gone; add none.
GO_BACK = {
    ("broker/persistence", "broker/core"),
    ("broker/persistence", "broker/fronts"),
}


def arrows() -> dict[str, Arrows]:
    """The arrows between the children of each folder: an import counts where the paths of both modules part."""
    found: dict[str, Arrows] = defaultdict(lambda: defaultdict(dict))
    for source in programs().values():
        path = source.path.with_suffix("").parts
        for target, line in imported_modules(source):
            other = programs()[target].path.with_suffix("").parts
            depth = next((n for n, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), 0)
            if depth:
                here, there = ("/".join(parts[: depth + 1]) for parts in (path, other))
                found["/".join(path[:depth])][here].setdefault(there, (source, line))
    return found


def circle(rooms: Arrows, without: set[tuple[str, str]]) -> list[str]:
    """One circle of the rooms of a folder, each imported by the one after it; empty when there is none."""
    graph = {room: [other for other in others if (room, other) not in without] for room, others in rooms.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circles_of_rooms() -> None:
    """No room reaches itself through the rooms and files of its folder."""
    offences = []
    for rooms in arrows().values():
        for imported, importer in pairwise(circle(rooms, GO_BACK)):
            source, line = rooms[importer][imported]
            offences.append(
                source.at(line, f"{importer} -> {imported} is in a circle; move what both need to the lower one")
            )
    assert not offences, report(offences)


def test_arrows_that_go_back_close_a_circle() -> None:
    """Each arrow that is excused still closes a circle; the others are struck from the list."""
    folders = {room: rooms for rooms in arrows().values() for room in rooms}
    struck = [
        f"{a} -> {b}" for a, b in sorted(GO_BACK) if a not in folders or not circle(folders[a], GO_BACK - {(a, b)})
    ]
    assert not struck, "strike from GO_BACK: " + ", ".join(struck)
