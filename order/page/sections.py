"""The sections of a page below the plots, as tables and lists: evidence, repeats, handovers, percentiles, limits."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from markupsafe import Markup

from lockstep.order.kinds import RULES, Cause, Confidence
from lockstep.order.page.axis import Axis, length_text
from lockstep.order.page.markup import tag
from lockstep.order.page.pieces import card, table
from lockstep.order.page.run import Found, JudgedRun
from lockstep.order.report import Violation

__all__ = [
    "CorruptedTraces",
    "broken_lines",
    "clock_text",
    "corrupted_rows",
    "duplicates",
    "findings",
    "handovers",
    "latency",
    "limits",
    "periods",
]  # fmt: skip

_HANDOVERS_LISTED: Final = 10
_PERIODS_LISTED: Final = 300
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


class CorruptedTraces(NamedTuple):
    """Traces that were corrupted on purpose, and whether the check found what was done to them."""

    name: str
    expected: Sequence[str]  # what must be found, a violation's kind above all; none: nothing may be
    found: Sequence[str]

    @property
    def is_found(self) -> bool:
        """All of it, and nothing else."""
        return set(self.expected) == set(self.found)


def clock_text(time_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns / 1e9:.3f} s of a clock that is far from any date"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns // 1_000_000 % 1000:03} UTC"


def periods(run: JudgedRun) -> Markup | None:
    """What the bars show, as a table."""
    if not run.owners:
        return None
    bars = sorted(run.owners, key=lambda bar: (bar.group, bar.queue, bar.from_ns))[:_PERIODS_LISTED]
    rows = [
        [bar.group, str(bar.queue), bar.client_id, bar.period, clock_text(bar.from_ns)[11:-4],
         length_text((bar.to_ns - bar.from_ns) / 1e6), bar.attempts]
        for bar in bars
    ]  # fmt: skip
    more = f", the first {len(bars):,} of them" if len(bars) < len(run.owners) else ""
    summary = tag("summary", f"{len(run.owners):,} periods of ownership as a table{more}")
    heads = ["group", "queue", "owner", "#period", "from (UTC)", "#length", "#calls"]
    return tag("details", summary, table(heads, rows))


# Findings ----------------------------------------------------------------------------------------------------


def findings(run: JudgedRun, axis: Axis, id_: str) -> list[Markup]:
    report = run.report
    kinds = list(dict.fromkeys([*report.violation_counts, *report.undecided_counts]))
    if not kinds:
        return []
    rows = []
    for kind in kinds:
        sure, open_ = report.violation_counts.get(kind, 0), report.undecided_counts.get(kind, 0)
        rule = RULES[kind]
        rows.append([tag("b", str(kind)), f"({rule.letter})", rule.sentence, sure or "-", open_ or "-"])
    kinds_table = table(["kind", "rule", "what it means", "#violations", "#undecided"], rows)
    cards = [_example(word, one, run, axis, id_) for word, one in report.examples()]
    note = "Of each kind the first, the worst and the last finding, each with the command that prints its records."
    return [
        card("Kinds of findings", "Undecided: the records neither prove nor exclude it. It is no violation, and no "
              "pass.", kinds_table),
        card("Evidence", note, *cards),
    ]  # fmt: skip


def _example(word: str, one: Violation, run: JudgedRun, axis: Axis, id_: str) -> Markup:
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
            tag("span", f"{clock_text(moment.time_ns)[11:-4]} ", class_="muted"),
            f"{moment.owner()}: {moment.text()}",
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


def duplicates(run: JudgedRun) -> Markup | None:
    found = [(cause, count) for cause, count in run.report.duplicates.items() if count]
    if not found:
        return None
    rows = [[str(cause), count, _CAUSES[Cause(cause)]] for cause, count in sorted(found, key=lambda one: -one[1])]
    note = "Repeats are no violations: delivery is at least once. Each has its cause."
    return card("Handled again", note, table(["cause", "#messages", "what it means"], rows))


def handovers(run: JudgedRun, axis: Axis) -> Markup | None:
    found = sorted(run.report.handovers, key=lambda one: -one.duration_ms)
    if not found:
        return None
    rows = [
        [str(one.queue), one.from_client_id, one.to_client_id, clock_text(one.at_ns)[11:-4] if one.at_ns else "-",
         length_text(one.duration_ms)]
        for one in found[:_HANDOVERS_LISTED]
    ]  # fmt: skip
    note = "From the last record of the old owner to the first position of the new owner."
    if len(found) > len(rows):
        note += f" The longest {len(rows)} of {len(found):,}."
    return card("Handovers", note, table(["queue", "from", "to", "at (UTC)", "#took"], rows))


def latency(run: JudgedRun) -> list[Markup]:
    cards = []
    for measure, (heading, note) in _MEASURES.items():
        rows = [
            [row.queue, row.messages, *[_length(value) for value in (row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms)]]
            for row in run.latency
            if row.measure == measure
        ]
        if rows:
            cards.append(card(heading, note, table(["queue", "#messages", "#p50", "#p90", "#p99", "#longest"], rows)))
    return cards


def _length(value: float | None) -> str:
    return "-" if value is None else length_text(value)


def limits(run: JudgedRun) -> Markup | None:
    report = run.report
    parts = []
    if report.unseen:
        parts += [tag("h3", "Not seen"), tag("ul", *[tag("li", text) for text in report.unseen])]
    if report.clocks:
        parts += [tag("h3", "Clocks"), tag("ul", *[tag("li", text) for text in report.clocks])]
    return card("What these traces cannot show", None, *parts) if parts else None


def broken_lines(run: JudgedRun) -> Markup | None:
    if not run.report.broken:
        return None
    rows = [[tag("code", line.path), line.number, line.why] for line in run.report.broken]
    note = (
        f"{run.report.broken_lines:,} in all. With a line missing, nothing is proved: the verdict cannot be in order."
    )
    return card("Lines that are no records", note, table(["file", "#line", "why"], rows))


def corrupted_rows(corrupted: Sequence[CorruptedTraces]) -> Markup | None:
    if not corrupted:
        return None
    rows = []
    for one in corrupted:
        word = tag("span", "found", class_="good-text") if one.is_found else tag("span", "missed", class_="bad-text")
        rows.append([one.name, ", ".join(one.expected) or "nothing", ", ".join(one.found) or "nothing", word])
    note = "A check that never finds anything proves nothing. Each of these must be found, and named."
    return card(
        "The same traces, corrupted on purpose",
        note,
        table(["what was done", "must be found", "was found", "result"], rows),
    )
