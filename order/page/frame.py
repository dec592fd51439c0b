"""The frame of a page with plots: the document with its style and script, and plots that zoom over one time axis."""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from markupsafe import Markup

from lockstep.order.page.axis import Axis
from lockstep.order.page.markup import join, tag
from lockstep.order.page.pieces import percent

__all__ = ["KEYS", "document", "plots_over"]

KEYS: Final = "Keys: + and - zoom, arrows move, 0 shows all. Drag across a plot to zoom into that time."
_BUTTONS: Final = (("in", "+", "Zoom in"), ("out", "-", "Zoom out"), ("left", "←", "Earlier"), ("right", "→", "Later"),
                   ("all", "Show all", None))  # fmt: skip


def document(title: str, main: Markup, *, style: str = "", script: str = "") -> str:
    """The whole document. It loads nothing.

    Args:
        style: CSS after that of all pages.
        script: JavaScript before that of all pages, so that it hears of the first window of the plots.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(_part("page.css") + style)),
        tag("noscript", tag("style", Markup(".tools { display: none; }"))),
    )
    scripts = [tag("script", Markup(text)) for text in (script, _part("page.js")) if text]
    return f"<!doctype html>\n{tag('html', head, tag('body', main, *scripts), lang='en')}\n"


def _part(name: str) -> str:
    with files(__package__).joinpath(name).open(encoding="utf-8") as file:
        return file.read()


def plots_over(
    axis: Axis,
    lanes: Iterable[Markup | None],
    *,
    id_: str,
    label: str,
    defs: Markup | None = None,
    ground: Markup | None = None,
) -> Markup:
    """Lanes under one ruler, with buttons. page.js shows the same window of time in all of them.

    Args:
        label: for a screen reader.
        ground: SVG behind all lanes.
    """
    buttons = [tag("button", text, type="button", data_do=do, aria_label=name) for do, text, name in _BUTTONS]
    tools = tag("div", *buttons, tag("output", class_="window", aria_live="polite"), class_="tools")
    segments = [[segment.begin, segment.end, segment.time_ms] for segment in axis.segments]
    return tag(
        "div",
        defs,
        tools,
        _ruler(axis),
        _ground(axis, ground),
        *lanes,
        class_="plots",
        id=id_,
        tabindex=0,
        role="group",
        aria_label=label,
        data_length=axis.length,
        data_segments=json.dumps(segments),
    )


def _ruler(axis: Axis) -> Markup:
    texts = []
    for tick in axis.ticks():
        class_ = "end" if tick.place > 0.92 * axis.length else None
        texts.append(tag("span", tick.text, class_=class_, style=f"left:{percent(tick.place, axis.length)}"))
    return tag("div", tag("div", "time", class_="side"), tag("div", *texts, class_="ticks"), class_="ruler")


def _ground(axis: Axis, more: Markup | None) -> Markup:
    """The lines of the ticks and the cuts, behind all plots."""
    places = [percent(tick.place, axis.length) for tick in axis.ticks()]
    lines = [tag("line", x1=x, x2=x, y1=0, y2="100%") for x in places]
    cuts = [
        tag("rect", class_="cut", height="100%", data_a=cut.begin, data_b=cut.end,
            style=f"--x:{percent(cut.begin, axis.length)};--w:{percent(cut.end - cut.begin, axis.length)}")
        for cut in axis.cuts
    ]  # fmt: skip
    hatch = tag("pattern", tag("path", d="M-2 2L2-2M0 8L8 0M6 10L10 6", class_="cut-line"), id="cut", width=8, height=8,
                patternUnits="userSpaceOnUse")  # fmt: skip
    defs = tag("defs", hatch) if cuts else None
    chosen = tag("rect", class_="chosen", height="100%")
    grid = tag("g", *lines, class_="grid")
    return tag("svg", defs, join(more), *cuts, grid, chosen, class_="ground", aria_hidden="true")
