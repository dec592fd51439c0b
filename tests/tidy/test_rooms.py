"""The first law inside a package: its rooms, and the files beside them, import one way too.

A room is a folder. Every import counts: one inside a function, and one for the type checker alone, since who reads one
of two rooms that name each other must read both.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from tests.tidy.drawing import drawing
from tests.tidy.rooms import arrows
from tests.tidy.source import PACKAGES, report


def circle(rooms: Mapping[str, Iterable[str]]) -> list[str]:
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


def test_a_circle_of_three_rooms_is_found() -> None:
    """A longer way back counts as well; one more arrow in the same direction does not."""
    assert sorted(set(circle({"a": ["b"], "b": ["c"], "c": ["a"]}))) == ["a", "b", "c"]
    assert circle({"a": ["b", "c"], "b": ["c"]}) == []


def test_the_drawing_has_all_packages() -> None:
    """`make docs` writes the page."""
    page = drawing()
    assert [package for package in PACKAGES if f">{package}/</text>" not in page] == []
