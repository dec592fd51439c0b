"""The HTML file: verdict, counts, plots, findings with their evidence, and the limits of the evidence, of each run."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.order.kinds import RULES, Cause, Confidence
from lockstep.order.page.axis import Axis, length_text
from lockstep.order.page.markup import Html, tag
from lockstep.order.page.owners import Owners, owners_of
from lockstep.order.page.plots import axis_of, handover_lane, mark_lane, owner_rows, rate_lane, waiting_lane
from lockstep.order.page.run import Found, JudgedRun
from lockstep.order.report import Verdict, Violation

__all__ = ["Spoilt", "page", "write_page"]

LEGEND_MAX: Final = 120
_HANDOVERS_LISTED: Final = 10
_CAUSES: Final = {
    Cause.TAKEOVER: "the last owner ended before it had committed",
    Cause.SUSPEND: "the listener failed and received the messages again",
    Cause.RESET: "the offset was moved on purpose",
    Cause.PRODUCER_RETRY: "a repeated send stored one message twice",
    Cause.UNEXPLAINED: "part of a repeat that is a violation",
}
_MEASURES: Final = {
    "handling": ("How long listeners took", "From the begin of a listener's call to its end."),
    "lag": ("How long messages waited", "From the time the broker stored a message until it was handled first."),
}
_MARKS: Final = {Verdict.IN_ORDER: "✓", Verdict.NOT_IN_ORDER: "✗", Verdict.UNDECIDED: "?"}
_KEYS: Final = "Keys: + and - zoom, arrows move, 0 shows all. Drag across a plot to zoom into that time."
_BUTTONS: Final = (("in", "+", "Zoom in"), ("out", "-", "Zoom out"), ("left", "←", "Earlier"), ("right", "→", "Later"),
                   ("all", "Show all", None))  # fmt: skip


class Spoilt(NamedTuple):
    """Traces that were spoilt on purpose, and whether the check found what was done to them."""

    name: str
    expected: Sequence[str]  # what must be found, a violation's kind above all; none: nothing may be
    found: Sequence[str]

    @property
    def is_found(self) -> bool:
        """All of it, and nothing else."""
        return set(self.expected) == set(self.found)


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
    main = tag("main", tag("h1", title), *parts, _spoilt(spoilt), foot)
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
        *_findings(run, axis, id_),
        _duplicates(run),
        _handovers(run, axis),
        *_latency(run),
        _limits(run),
        _broken(run),
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


def _card(heading: str, note: str | None, *content: Html | None, id_: str | None = None) -> Html:
    return tag("section", tag("h2", heading), tag("p", note, class_="note") if note else None, *content,
               class_="card", id=id_)  # fmt: skip


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
        aria_label=f"Plots of one run over time. {_KEYS} All that they show is also in the tables below.",
        data_length=axis.length,
        data_segments=json.dumps(segments),
    )
    status = tag("p", class_="told note", aria_live="polite")
    return _card("Over time", f"{_begin(axis)} {_KEYS}", plots, status, _legend(run, owners), id_=f"{id_}-time")


def _begin(axis: Axis) -> str:
    began = _clock(axis.begin_ns)
    if not axis.cuts:
        return f"0 is {began}."
    cuts = ", ".join(length_text(cut.left_out_ms) for cut in axis.cuts)
    return (
        f"0 is {began}. Hatched: {cuts} without any record are left out; all was quiet then, or the clock of one "
        "machine is wrong (see the clocks below)."
    )


def _clock(time_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns / 1e9:.3f} s of a clock that is far from any date"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns // 1_000_000 % 1000:03} UTC"


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


# Findings ----------------------------------------------------------------------------------------------------


def _findings(run: JudgedRun, axis: Axis, id_: str) -> list[Html]:
    report = run.report
    kinds = list(dict.fromkeys([*report.violation_counts, *report.undecided_counts]))
    if not kinds:
        return []
    rows = []
    for kind in kinds:
        sure, open_ = report.violation_counts.get(kind, 0), report.undecided_counts.get(kind, 0)
        rule = RULES[kind]
        rows.append([tag("b", str(kind)), f"({rule.letter})", rule.sentence, sure or "-", open_ or "-"])
    table = _table(["kind", "rule", "what it means", "#violations", "#undecided"], rows)
    cards = [_example(word, one, run, axis, id_) for word, one in report.examples()]
    note = "Of each kind the first, the worst and the last finding, each with the command that prints its records."
    return [
        _card("Kinds of findings", "Undecided: the records neither prove nor exclude it. It is no violation, and no "
              "pass.", table),
        _card("Evidence", note, *cards),
    ]  # fmt: skip


def _example(word: str, one: Violation, run: JudgedRun, axis: Axis, id_: str) -> Html:
    found = next((found for found in run.found if found.violation is one), Found(one, (), None))
    unsure = one.confidence is Confidence.UNDECIDED
    head = tag(
        "h3",
        tag("span", str(one.kind), class_="unsure-text" if unsure else "bad-text"),
        tag("span", word, class_="badge"),
        tag("span", str(one.confidence), class_="badge"),
    )
    show = None
    if found.span_ns is not None:
        begin, end = (axis.place(time_ns) for time_ns in found.span_ns)
        show = tag("button", "Show in the plots", type="button", class_="goto", data_of=f"{id_}-plots",
                   data_begin=begin, data_end=end)  # fmt: skip
    records = [
        tag(
            "li",
            tag("span", f"{_clock(moment.time_ns)[11:-4]} ", class_="muted"),
            f"{moment.owner()}: {moment.words()}",
        )
        for moment in found.moments
    ]
    return tag(
        "article",
        head,
        tag("p", one.sentence),
        tag("ul", *records, class_="records") if records else None,
        tag("p", tag("code", one.story_command(run.files), class_="command"), show, class_="acts"),
        class_="example",
    )


# Tables ------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table. The heading of a column of numbers begins with #."""
    numbers = [head.startswith("#") for head in heads]
    first = tag("tr", *[tag("th", head.lstrip("#"), class_="n" if is_number else None, scope="col")
                        for head, is_number in zip(heads, numbers, strict=True)])  # fmt: skip
    body = []
    for row in rows:
        cells = [
            tag("td", _cell(value), class_="n" if is_number else None)
            for value, is_number in zip(row, numbers, strict=True)
        ]
        body.append(tag("tr", *cells))
    table = tag("table", tag("thead", first), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="table")


def _cell(value: object) -> str | Html:
    if isinstance(value, Html):
        return value
    return f"{value:,}" if isinstance(value, int) else str(value)


def _duplicates(run: JudgedRun) -> Html | None:
    found = [(cause, count) for cause, count in run.report.duplicates.items() if count]
    if not found:
        return None
    rows = [[str(cause), count, _CAUSES[Cause(cause)]] for cause, count in sorted(found, key=lambda one: -one[1])]
    note = "Repeats are no violations: delivery is at least once. Each has its cause."
    return _card("Handled again", note, _table(["cause", "#messages", "what it means"], rows))


def _handovers(run: JudgedRun, axis: Axis) -> Html | None:
    found = sorted(run.report.handovers, key=lambda one: -one.duration_ms)
    if not found:
        return None
    rows = [
        [str(one.queue), one.from_client_id, one.to_client_id, _clock(one.at_ns)[11:-4] if one.at_ns else "-",
         length_text(one.duration_ms)]
        for one in found[:_HANDOVERS_LISTED]
    ]  # fmt: skip
    note = "From the last record of the old owner to the first position of the new owner."
    if len(found) > len(rows):
        note += f" The longest {len(rows)} of {len(found):,}."
    return _card("Handovers", note, _table(["queue", "from", "to", "at (UTC)", "#took"], rows))


def _latency(run: JudgedRun) -> list[Html]:
    cards = []
    for measure, (heading, note) in _MEASURES.items():
        rows = [
            [row.queue, row.messages, *[_length(value) for value in (row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms)]]
            for row in run.latency
            if row.measure == measure
        ]
        if rows:
            cards.append(_card(heading, note, _table(["queue", "#messages", "#p50", "#p90", "#p99", "#longest"], rows)))
    return cards


def _length(value: float | None) -> str:
    return "-" if value is None else length_text(value)


def _limits(run: JudgedRun) -> Html | None:
    report = run.report
    parts = []
    if report.unseen:
        parts += [tag("h3", "Not seen"), tag("ul", *[tag("li", text) for text in report.unseen])]
    if report.clocks:
        parts += [tag("h3", "Clocks"), tag("ul", *[tag("li", text) for text in report.clocks])]
    return _card("What these traces cannot show", None, *parts) if parts else None


def _broken(run: JudgedRun) -> Html | None:
    if not run.report.broken:
        return None
    rows = [[tag("code", line.path), line.number, line.why] for line in run.report.broken]
    note = (
        f"{run.report.broken_lines:,} in all. With a line missing, nothing is proved: the verdict cannot be in order."
    )
    return _card("Lines that are no records", note, _table(["file", "#line", "why"], rows))


def _spoilt(spoilt: Sequence[Spoilt]) -> Html | None:
    if not spoilt:
        return None
    rows = []
    for one in spoilt:
        word = tag("span", "found", class_="good-text") if one.is_found else tag("span", "missed", class_="bad-text")
        rows.append([one.name, ", ".join(one.expected) or "nothing", ", ".join(one.found) or "nothing", word])
    note = "A check that never finds anything proves nothing. Each of these must be found, and named."
    table = _table(["what was done", "must be found", "was found", "result"], rows)
    return _card("The same traces, spoilt on purpose", note, table)
