"""The HTML file: verdict, counts, plots, findings with their evidence, and the limits of the evidence, of each run."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from lockstep.order.page.axis import Axis, length_text
from lockstep.order.page.markup import Html, tag
from lockstep.order.page.owners import Owners, owners_of
from lockstep.order.page.plots import axis_of, handover_lane, mark_lane, owner_rows, rate_lane, waiting_lane
from lockstep.order.page.run import JudgedRun
from lockstep.order.page.sections import (
    Spoilt,
    broken_lines,
    card,
    clock_text,
    duplicates,
    findings,
    handovers,
    latency,
    limits,
    periods,
    spoilt_rows,
)
from lockstep.order.report import Verdict

__all__ = ["page", "write_page"]

LEGEND_MAX: Final = 120
_MARKS: Final = {Verdict.IN_ORDER: "✓", Verdict.NOT_IN_ORDER: "✗", Verdict.UNDECIDED: "?"}
_KEYS: Final = "Keys: + and - zoom, arrows move, 0 shows all. Drag across a plot to zoom into that time."
_BUTTONS: Final = (("in", "+", "Zoom in"), ("out", "-", "Zoom out"), ("left", "←", "Earlier"), ("right", "→", "Later"),
                   ("all", "Show all", None))  # fmt: skip


def write_page(path: Path, title: str, runs: Sequence[JudgedRun], spoilt: Sequence[Spoilt] = ()) -> None:
    """Write the page, and its folder if there is none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace") as file:
        file.write(page(title, runs, spoilt))


def page(title: str, runs: Sequence[JudgedRun], spoilt: Sequence[Spoilt] = ()) -> str:
    """The whole document. It loads nothing."""
    style, script = _part("page.css"), _part("page.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", style),
    )
    parts = [part for number, run in enumerate(runs) for part in _run(run, f"run{number}", is_named=len(runs) > 1)]
    foot = tag("footer", "Rules and words are those of docs/order.md and docs/judge.md of Lockstep.")
    main = tag("main", tag("h1", title), *parts, spoilt_rows(spoilt), foot)
    return f"<!doctype html>\n{tag('html', head, tag('body', main, tag('script', script)), lang='en')}\n"


def _part(name: str) -> Html:
    with files(__package__).joinpath(name).open(encoding="utf-8") as file:
        return Html(file.read())


def _run(run: JudgedRun, id_: str, *, is_named: bool) -> list[Html | None]:
    axis = axis_of(run)
    return [
        tag("h2", run.name or "the traces", class_="run") if is_named else None,
        _verdict(run),
        _counts(run),
        _plots(run, axis, owners_of(run), id_),
        *findings(run, axis, id_),
        duplicates(run),
        handovers(run, axis),
        *latency(run),
        limits(run),
        broken_lines(run),
    ]


def _verdict(run: JudgedRun) -> Html:
    report = run.report
    verdict = report.verdict
    class_ = {Verdict.IN_ORDER: "good", Verdict.NOT_IN_ORDER: "bad", Verdict.UNDECIDED: "unsure"}[verdict]
    words = tag("div", tag("b", str(verdict)), tag("span", report.reason()))
    return tag("div", tag("i", _MARKS[verdict], aria_hidden="true"), words, class_=f"verdict {class_}")


def _counts(run: JudgedRun) -> Html:
    """The same rows as those of `lockstep trace check`."""
    bad = {"violations": "bad", "lost": "bad", "undecided": "unsure", "duplicates": "unsure", "broken lines": "bad"}
    figures = []
    for name, text in run.report.rows():
        if name not in ("verdict", "because"):
            number, _, more = text.partition(" ")
            class_ = f"figure {bad.get(name, '')}" if number != "0" else "figure"
            figures.append(tag("div", tag("dt", name), tag("dd", tag("b", number), f" {more}" if more else None),
                               class_=class_.strip()))  # fmt: skip
    return tag("dl", *figures, class_="figures")


# The plots ---------------------------------------------------------------------------------------------------


def _plots(run: JudgedRun, axis: Axis, owners: Owners, id_: str) -> Html | None:
    lanes = [
        rate_lane(run, axis),
        waiting_lane(run, axis),
        handover_lane(run, axis),
        mark_lane(run, axis),
        owner_rows(run, axis, owners),
    ]
    if not any(lanes):
        return None
    buttons = [tag("button", text, type="button", data_do=do, aria_label=name) for do, text, name in _BUTTONS]
    tools = tag("div", *buttons, tag("output", class_="window", aria_live="polite"), class_="tools")
    segments = [[segment.begin, segment.end, segment.time_ms] for segment in axis.segments]
    plots = tag(
        "div",
        owners.defs,
        tools,
        _ruler(axis),
        _ground(axis),
        *lanes,
        class_="plots",
        id=f"{id_}-plots",
        tabindex=0,
        role="group",
        aria_label=f"Plots of one run over time. {_KEYS} Tables below have the same.",
        data_length=axis.length,
        data_segments=json.dumps(segments),
    )
    status = tag("p", class_="told note", aria_live="polite")
    return card(
        "Over time",
        f"{_begin(axis)} {_drawn(run)}{_KEYS}",
        plots,
        status,
        _legend(run, owners),
        periods(run),
        id_=f"{id_}-time",
    )


def _drawn(run: JudgedRun) -> str:
    """How many findings are drawn, if not all of them are."""
    counted = sum((*run.report.violation_counts.values(), *run.report.undecided_counts.values()))
    drawn = sum(found.span_ns is not None for found in run.found)
    if drawn == counted:
        return ""
    return f"{drawn:,} of {counted:,} findings are drawn: the first of each kind, its worst and its last. "


def _begin(axis: Axis) -> str:
    began = clock_text(axis.begin_ns)
    if not axis.cuts:
        return f"0 is {began}."
    cuts = ", ".join(length_text(cut.left_out_ms) for cut in axis.cuts)
    return (
        f"0 is {began}. Hatched: {cuts} without any record are left out; all was quiet then, or the clock of one "
        "machine is wrong (see the clocks below)."
    )


def _ruler(axis: Axis) -> Html:
    texts = []
    for tick in axis.ticks():
        x = 100 * tick.place / axis.length
        texts.append(tag("span", tick.text, class_="end" if x > 92 else None, style=f"left:{x:.4f}%"))
    return tag("div", tag("div", "time", class_="side"), tag("div", *texts, class_="ticks"), class_="ruler")


def _ground(axis: Axis) -> Html:
    """The lines of the ticks and the cuts, behind all plots."""
    places = [100 * tick.place / axis.length for tick in axis.ticks()]
    lines = [tag("line", x1=f"{x:.4f}%", x2=f"{x:.4f}%", y1=0, y2="100%") for x in places]
    cuts = [
        tag("rect", class_="cut", height="100%", data_a=cut.begin, data_b=cut.end,
            style=f"--x:{100 * cut.begin / axis.length:.4f}%;--w:{100 * (cut.end - cut.begin) / axis.length:.4f}%")
        for cut in axis.cuts
    ]  # fmt: skip
    hatch = tag("pattern", tag("path", d="M-2 2L2-2M0 8L8 0M6 10L10 6", class_="cut-line"), id="cut", width=8, height=8,
                patternUnits="userSpaceOnUse")  # fmt: skip
    defs = tag("defs", hatch) if cuts else None
    return tag("svg", defs, *cuts, tag("g", *lines, class_="grid"), tag("rect", class_="chosen", height="100%"),
               class_="ground", aria_hidden="true")  # fmt: skip


def _legend(run: JudgedRun, owners: Owners) -> Html | None:
    if not owners.by_client:
        return None
    entries = []
    for client, owner in list(owners.by_client.items())[:LEGEND_MAX]:
        swatch = tag("svg", tag("rect", width=22, height=12, fill=owner.fill), width=22, height=12, aria_hidden="true")
        entries.append(
            tag("button", swatch, tag("b", str(owner.number)), f" {owner.name}", type="button", data_o=owner.number,
                aria_pressed="false", title=client)
        )  # fmt: skip
    more = len(owners.by_client) - len(entries)
    rest = tag("span", f"and {more:,} more") if more > 0 else None
    keys = []
    if any(found.span_ns and found.span_ns[1] > found.span_ns[0] for found in run.found):
        keys.append(_key("at-once", "calls at the same time, in true length"))
    if run.report.violations:
        keys.append(_key("mark", "violation"))
    if run.report.undecided:
        keys.append(_key("mark unsure", "undecided"))
    hint = tag("span", "Choose owners to see them alone:") if len(entries) > 1 else None
    return tag("div", hint, *entries, rest, *keys, class_="legend")


def _key(class_: str, text: str) -> Html:
    if class_ == "at-once":
        shape = tag("rect", class_="at-once", height=14, style="--x:5px;--w:4px")
    else:
        shape = tag("svg", tag("path", d="M0-6L5.5 0L0 6L-5.5 0Z"), class_=class_, x=7, y=7, overflow="visible")
    return tag("span", tag("svg", shape, width=14, height=14, aria_hidden="true"), f" {text}", class_="key")
