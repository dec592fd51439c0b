"""The HTML file: verdict, counts, plots, findings with their evidence, and the limits of the evidence, of each run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from lockstep.order.page.axis import Axis, length_text
from lockstep.order.page.frame import KEYS, document, plots_over
from lockstep.order.page.markup import tag
from lockstep.order.page.owners import Owners, owners_of
from lockstep.order.page.pieces import BAD, GOOD, UNSURE, card, diamond, swatch, verdict
from lockstep.order.page.plots import axis_of, handover_lane, mark_lane, owner_rows, rate_lane, waiting_lane
from lockstep.order.page.run import JudgedRun
from lockstep.order.page.sections import (
    CorruptedTraces,
    broken_lines,
    clock_text,
    corrupted_rows,
    duplicates,
    findings,
    handovers,
    latency,
    limits,
    periods,
)
from lockstep.order.report import Verdict

__all__ = ["page", "write_page"]

LEGEND_MAX: Final = 120
_KINDS: Final = {Verdict.IN_ORDER: GOOD, Verdict.NOT_IN_ORDER: BAD, Verdict.UNDECIDED: UNSURE}


def write_page(path: Path, title: str, runs: Sequence[JudgedRun], corrupted: Sequence[CorruptedTraces] = ()) -> None:
    """Write the page, and its folder if there is none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace") as file:
        file.write(page(title, runs, corrupted))


def page(title: str, runs: Sequence[JudgedRun], corrupted: Sequence[CorruptedTraces] = ()) -> str:
    """The whole document. It loads nothing."""
    parts = [part for number, run in enumerate(runs) for part in _run(run, f"run{number}", is_named=len(runs) > 1)]
    foot = tag("footer", "Rules and words are those of docs/order.md and docs/judge.md of Lockstep.")
    return document(title, tag("main", tag("h1", title), *parts, corrupted_rows(corrupted), foot))


def _run(run: JudgedRun, id_: str, *, is_named: bool) -> list[Markup | None]:
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


def _verdict(run: JudgedRun) -> Markup:
    return verdict(_KINDS[run.report.verdict], str(run.report.verdict), run.report.reason())


def _counts(run: JudgedRun) -> Markup:
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


def _plots(run: JudgedRun, axis: Axis, owners: Owners, id_: str) -> Markup | None:
    lanes = [
        rate_lane(run, axis),
        waiting_lane(run, axis),
        handover_lane(run, axis),
        mark_lane(run, axis),
        owner_rows(run, axis, owners),
    ]
    if not any(lanes):
        return None
    label = f"Plots of one run over time. {KEYS} Tables below have the same."
    plots = plots_over(axis, lanes, id_=f"{id_}-plots", label=label, defs=owners.defs)
    status = tag("p", class_="told note", aria_live="polite")
    return card(
        "Over time",
        f"{_begin(axis)} {_drawn(run)}{KEYS}",
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


def _legend(run: JudgedRun, owners: Owners) -> Markup | None:
    if not owners.by_client:
        return None
    entries = []
    for client, owner in list(owners.by_client.items())[:LEGEND_MAX]:
        picture = swatch(tag("rect", width=22, height=12, fill=owner.fill), width=22, height=12)
        entries.append(
            tag("button", picture, tag("b", str(owner.number)), f" {owner.name}", type="button", data_o=owner.number,
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


def _key(class_: str, text: str) -> Markup:
    if class_ == "at-once":
        shape = tag("rect", class_="at-once", height=14, style="--x:5px;--w:4px")
    else:
        shape = diamond(class_=class_, x=7, y=7)
    return tag("span", swatch(shape, width=14, height=14), f" {text}", class_="key")
