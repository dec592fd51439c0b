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


def circle(rooms: Arrows) -> list[str]:
    """One circle of the rooms of a folder, each imported by the one after it; empty when there is none."""
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circles_of_rooms() -> None:
    """No room reaches itself through the rooms and files of its folder."""
    offences = []
    for rooms in arrows().values():
        for imported, importer in pairwise(circle(rooms)):
            source, line = rooms[importer][imported]
            offences.append(
                source.at(line, f"{importer} -> {imported} is in a circle; move what both need to the lower one")
            )
    assert not offences, report(offences)
