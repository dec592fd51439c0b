"""Draws the packages, and the rooms and files of each folder that has rooms, with their arrows: one page of SVG."""

from collections import defaultdict
from collections.abc import Mapping
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.order.page.markup import tag
from tests.tidy.rooms import arrows
from tests.tidy.source import PACKAGES, ROOT

__all__ = ["drawing"]

Below = dict[str, set[str]]
"""Room or file -> what it imports."""

# Pixels.
_BOX_HEIGHT: Final = 26
_FLOOR_HEIGHT: Final = 78
_GAP: Final = 16
_LETTER_WIDTH: Final = 7.3
# After so many no row moves any more.
_SWEEPS: Final = 30
_STYLE: Final = Markup("""
:root { color-scheme: light dark; --ink: #1c2733; --back: #fff; --line: #8795a3; --room: #d6e6f8;
  --file: #f1f3f5; --hot: #c2410c }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --back: #0f1720; --line: #6f8296; --room: #1f3d5e; --file: #1c2833; --hot: #fb923c }
}
body { background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }
section { overflow-x: auto; margin-bottom: 2.5rem }
svg { display: block }
rect { fill: var(--file); stroke: var(--line) }
.room rect { fill: var(--room) }
.room text { font-weight: 600 }
text { fill: var(--ink); font: 12px ui-monospace, monospace; text-anchor: middle }
path { fill: none; stroke: var(--line); stroke-width: 1.2 }
path:hover { stroke: var(--hot); stroke-width: 3 }
""")
_HOW: Final = (
    "Made from the imports, by make docs. Who imports stands above what it imports. An arrow that follows from others"
    " is left out. Blue: a folder. Grey: a file. Point at a line to see its ends."
)


class _Box(NamedTuple):
    """A room or file in the picture; without a name, the place where a line crosses a floor."""

    name: str
    floor: int
    width: float
    line: int = 0


def drawing() -> str:
    """The page: first the packages, then each folder that has rooms."""
    graphs = {folder: _graph(folder) for folder in arrows()}
    order = ["", *sorted((folder for folder in graphs if _has_rooms(graphs[folder])), key=_place)]
    parts = [tag("h1", "Packages and rooms"), tag("p", _HOW)]
    for folder in dict.fromkeys(order):
        parts += [tag("h2", f"{folder}/" if folder else "The packages"), tag("section", _picture(graphs[folder]))]
    head = tag("head", tag("meta", charset="utf-8"), tag("title", "Packages and rooms"), tag("style", _STYLE))
    return f"<!doctype html>\n{tag('html', head, tag('body', *parts), lang='en')}\n"


def _graph(folder: str) -> Below:
    """The rooms and files of a folder, without the arrows that follow from others."""
    below: Below = defaultdict(set)
    for room, others in arrows()[folder].items():
        for other in others:
            if "__init__" not in room + other:
                below[room].add(other)
    reach: Below = {}
    for room in TopologicalSorter(below).static_order():
        below[room] -= {far for near in below[room] for far in reach[near]}
        reach[room] = below[room].union(*(reach[near] for near in below[room]))
    return below


def _has_rooms(below: Below) -> bool:
    return any((ROOT / name).is_dir() for name in below)


def _place(folder: str) -> tuple[int, str]:
    tops = (*PACKAGES, "scripts")
    return tops.index(folder.partition("/")[0]) if folder else -1, folder


def _picture(below: Below) -> Markup:
    boxes, lines = _boxes(below)
    rows = _rows(boxes, lines)
    centres = _centres(rows, lines)
    left = min(centres[box] - box.width / 2 for box in centres)
    width = max(centres[box] + box.width / 2 for box in centres) - left + 2
    height = (len(rows) - 1) * _FLOOR_HEIGHT + _BOX_HEIGHT + 2
    at = {box: (centres[box] - left + 1, height - 1 - _BOX_HEIGHT - box.floor * _FLOOR_HEIGHT) for box in centres}
    shapes = [_line(line, at) for line in lines] + [_shape(box, *at[box]) for box in centres if box.name]
    return tag("svg", *shapes, width=width, height=height, viewBox=f"0 0 {width:.0f} {height:.0f}")


def _boxes(below: Below) -> tuple[list[_Box], list[list[_Box]]]:
    """All boxes, and each arrow as the boxes that it passes, from above to below."""
    floors: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        floors[name] = max((floors[other] + 1 for other in below[name]), default=0)
    boxes = {name: _Box(name, floor, len(_label(name)) * _LETTER_WIDTH + 18) for name, floor in floors.items()}
    lines: list[list[_Box]] = []
    for upper, lower in ((boxes[name], boxes[other]) for name in sorted(below) for other in sorted(below[name])):
        crossings = [_Box("", floor, 4, len(lines)) for floor in range(upper.floor - 1, lower.floor, -1)]
        lines.append([upper, *crossings, lower])
    return list(dict.fromkeys([*boxes.values(), *(box for line in lines for box in line)])), lines


def _rows(boxes: list[_Box], lines: list[list[_Box]]) -> list[list[_Box]]:
    """The boxes floor by floor from below, each near those that it is joined to."""
    rows: dict[int, list[_Box]] = defaultdict(list)
    for box in boxes:
        rows[box.floor].append(box)
    near = _neighbours(lines)
    for sweep in range(_SWEEPS):
        place = {box: (number + 0.5) / len(row) for row in rows.values() for number, box in enumerate(row)}
        for floor in sorted(rows, reverse=sweep % 2 == 0):
            step = 1 if sweep % 2 == 0 else -1
            wanted = {box: [place[one] for one in near[box] if one.floor == floor + step] for box in rows[floor]}
            rows[floor].sort(key=lambda box: fmean(wanted[box]) if wanted[box] else place[box])
            place |= {box: (number + 0.5) / len(rows[floor]) for number, box in enumerate(rows[floor])}
    return [rows[floor] for floor in range(len(rows))]


def _centres(rows: list[list[_Box]], lines: list[list[_Box]]) -> dict[_Box, float]:
    """The x of each box: as near to its neighbours as the boxes beside it allow."""
    near = _neighbours(lines)
    x: dict[_Box, float] = {}
    for row in rows:
        ends = list(accumulate(box.width + _GAP for box in row))
        x |= {box: end - ends[-1] / 2 - box.width / 2 for box, end in zip(row, ends, strict=True)}
    for _ in range(_SWEEPS):
        for row in rows:
            wanted = [fmean([x[one] for one in near[box]] or [x[box]]) for box in row]
            right, left = wanted.copy(), wanted.copy()
            apart = [(one.width + other.width) / 2 + _GAP for one, other in pairwise(row)]
            for number, least in enumerate(apart):
                right[number + 1] = max(right[number + 1], right[number] + least)
            for number in range(len(apart) - 1, -1, -1):
                left[number] = min(left[number], left[number + 1] - apart[number])
            # The mean of two rows that keep the distance keeps it too.
            x |= {box: (a + b) / 2 for box, a, b in zip(row, right, left, strict=True)}
    return x


def _neighbours(lines: list[list[_Box]]) -> dict[_Box, list[_Box]]:
    near: dict[_Box, list[_Box]] = defaultdict(list)
    for line in lines:
        for upper, lower in pairwise(line):
            near[upper].append(lower)
            near[lower].append(upper)
    return near


def _line(line: list[_Box], at: Mapping[_Box, tuple[float, float]]) -> Markup:
    x, y = at[line[0]]
    path = [f"M{x:.0f} {y + _BOX_HEIGHT:.0f}"]
    for upper, lower in pairwise(line):
        (x, y), (to_x, to_y) = at[upper], at[lower]
        y += _BOX_HEIGHT
        half = (to_y - y) / 2
        path.append(f"C{x:.0f} {y + half:.0f} {to_x:.0f} {to_y - half:.0f} {to_x:.0f} {to_y:.0f}")
        path.append(f"V{to_y + _BOX_HEIGHT:.0f}" if not lower.name else "m-3 -7l3 7l3 -7")
    return tag("path", tag("title", f"{line[0].name} -> {line[-1].name}"), d="".join(path))


def _shape(box: _Box, x: float, y: float) -> Markup:
    shape = tag("rect", x=x - box.width / 2, y=y, width=box.width, height=_BOX_HEIGHT, rx=5)
    text = tag("text", _label(box.name), x=x, y=y + 17)
    return tag("g", shape, text, class_="room" if (ROOT / box.name).is_dir() else None)


def _label(name: str) -> str:
    last = name.rpartition("/")[2]
    return f"{last}/" if (ROOT / name).is_dir() else last
