"""A comparison as text, JSON, CSV and a page with plots."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from markupsafe import Markup

from lockstep.order.page.frame import document
from lockstep.order.page.markup import tag
from lockstep.order.page.pieces import card, percent, round_up, table
from lockstep.remoting.percentiles import percentile
from lockstep.remoting.texts import counted
from lockstep.simulation.search.compare import Comparison
from lockstep.simulation.search.figures import FIGURES, Figure

__all__ = ["comparison_csv", "comparison_lines", "comparison_page", "comparison_row"]

_BY_NAME: Final = {figure.name: figure for figure in FIGURES}
_COLUMNS_MAX: Final = 6
_ROW: Final = 34  # px
_HEAD: Final = 22


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Tables with a line a figure and a column a way: the median of the seeds, and in brackets their p99."""
    yield _head(comparison)
    ways = range(len(comparison.ways))
    yield ""
    yield from (f"  {_letter(way)}  {comparison.name(way)}" for way in ways)
    for first in range(0, len(ways), _COLUMNS_MAX):
        shown = ways[first : first + _COLUMNS_MAX]
        rows = [["", *map(_letter, shown)]]
        rows += [
            [_BY_NAME[name].title, *(_cell(comparison, way, name) for way in shown)] for name in comparison.figures
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        yield ""
        for name, *cells in rows:
            numbers = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            yield "  ".join([name.ljust(widths[0]), *numbers]).rstrip()
    yield ""
    yield "Each is the median of the seeds, and in brackets the p99: of fewer than 100 seeds the largest."
    for name in comparison.figures:
        yield f"{_BY_NAME[name].title}: {_BY_NAME[name].summary}"
    for trial in comparison.errors():
        yield f"ERROR {comparison.name(trial.way)}, seed {trial.seed}: {trial.error}"


def _letter(way: int) -> str:
    """A, B, ... Z, A2, B2, ..."""
    again, place = divmod(way, 26)
    return chr(ord("A") + place) + (str(again + 1) if again else "")


def _head(comparison: Comparison) -> str:
    seeds = len({trial.seed for trial in comparison.trials})
    given = ", ".join(f"{name}={value}" for name, value in comparison.common.items())
    story = f"{comparison.base.name} with {given}" if given else comparison.base.name
    return f"{story}: {counted(len(comparison.ways), 'way')}, {counted(seeds, 'seed')} each"


def _rows(comparison: Comparison) -> list[list[str]]:
    return [
        [comparison.name(number), *(_cell(comparison, number, name) for name in comparison.figures)]
        for number in range(len(comparison.ways))
    ]


def _cell(comparison: Comparison, way: int, name: str) -> str:
    values = comparison.values(way, name)
    if not values:
        return "-"
    figure = _BY_NAME[name]
    return f"{figure.text(percentile(values, 50))} ({figure.text(percentile(values, 99))})"


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON fields."""
    base = comparison.base
    return {
        "story": base.name,
        "setup": dict(base.setup),
        "faults": list(base.faults),
        "consumer": list(base.consumer),
        "broker": list(base.broker),
        "ways": [
            {
                "with": dict(way.values),
                "figures": {name: _summary(comparison.values(number, name)) for name in comparison.figures},
                "seeds": [
                    {"seed": one.seed, "figures": dict(one.figures), "error": one.error or None}
                    for one in comparison.trials
                    if one.way == number
                ],
            }
            for number, way in enumerate(comparison.ways)
        ],
    }


def _summary(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None, "max": None}
    return {"p50": percentile(values, 50), "p99": percentile(values, 99), "max": values[-1]}


def comparison_csv(comparison: Comparison) -> str:
    """A line a run, with a header."""
    names = [name for name, _ in comparison.ways[0].values]
    figures, out = comparison.figures, io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "seed", *figures, "error"])
    for one in comparison.trials:
        values = dict(comparison.ways[one.way].values)
        writer.writerow([*values.values(), one.seed, *(one.figures.get(name, "") for name in figures), one.error])
    return out.getvalue()


# The page ----------------------------------------------------------------------------------------------------


def comparison_page(comparison: Comparison) -> str:
    """The whole document. It loads nothing, and needs no script."""
    names = comparison.figures
    plots = [_plot(comparison, _BY_NAME[name]) for name in names]
    rows = _rows(comparison)
    errors = [f"{comparison.name(one.way)}, seed {one.seed}: {one.error}" for one in comparison.errors()]
    main = tag(
        "main",
        tag("h1", f"{comparison.base.name} in {len(comparison.ways)} ways"),
        tag("p", _head(comparison), class_="note"),
        card(
            "Each way",
            "The median of the seeds, in brackets the p99.",
            table(["Way", *(f"#{_BY_NAME[name].title}" for name in names)], rows),
        ),
        tag("div", *plots, class_="multiples"),
        card("Runs that did not reach their end", None, *[tag("p", text) for text in errors]) if errors else None,
        tag("footer", "Made by lockstep-sim. Times are virtual."),
    )
    return document(f"{comparison.base.name} compared", main, style=_STYLE)


def _plot(comparison: Comparison, figure: Figure) -> Markup:
    """A row a way: a dot a seed, a bar at the median, a line to the p99."""
    ways = len(comparison.ways)
    top = round_up(max((value for way in range(ways) for value in comparison.values(way, figure.name)), default=0))
    height = _HEAD + _ROW * ways
    shapes = []
    for part in (0, 0.5, 1):
        x = percent(part, 1)
        anchor = "start" if not part else "end" if part == 1 else "middle"
        shapes.append(tag("line", class_="level", x1=x, x2=x, y1=_HEAD - 6, y2="100%"))
        shapes.append(tag("text", figure.text(top * part), class_="value", x=x, y=11, text_anchor=anchor))
    for number in range(ways):
        shapes += _row(comparison, number, figure, top)
    field = tag("svg", *shapes, width="100%", height=height, role="img", aria_label=f"{figure.title}, a row a way")
    return card(figure.title, figure.summary, field)


def _row(comparison: Comparison, number: int, figure: Figure, top: float) -> Iterator[Markup]:
    values, y = comparison.values(number, figure.name), _HEAD + _ROW * number
    yield tag("text", comparison.name(number), class_="way", x=0, y=y + 10)
    if not values:
        return
    middle, high = percentile(values, 50), percentile(values, 99)
    line = y + 22
    yield tag("line", class_="reach", x1=percent(middle, top), x2=percent(high, top), y1=line, y2=line)
    for value in values:
        yield tag("circle", tag("title", figure.text(value)), class_="seed", cx=percent(value, top), cy=line, r=3.5)
    yield tag(
        "rect",
        tag("title", f"median {figure.text(middle)}, p99 {figure.text(high)}"),
        class_="middle",
        x=percent(middle, top),
        y=line - 7,
        width=3,
        height=14,
    )


_STYLE: Final = """
.multiples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); gap: 0 16px; }
.multiples svg { overflow: visible; }
.way { font-size: 12px; fill: var(--ink); }
.reach { stroke: var(--series-1); stroke-width: 2; opacity: 0.5; }
.seed { fill: var(--series-1); opacity: 0.45; }
.middle { fill: var(--ink); }
"""
