"""The page of a run: bars of the rates with a dot for each round, and the floors. It loads nothing."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from lockstep.order.page.frame import document
from lockstep.order.page.markup import join, tag
from lockstep.order.page.pieces import card, swatch, table
from scripts.bench.apache.figures import Case
from scripts.bench.apache.floors import verdicts
from scripts.bench.apache.report import GROUPS, HEAD, WORKS, Report
from scripts.bench.apache.servers import APACHE, FILES, MEMORY, TITLES

__all__ = ["bench_page"]

KEYS: Final = (APACHE, FILES, MEMORY)
BAR, GAP, DOT = 16, 4, 3  # px
TEXT_SHARE: Final = 0.86  # of the width is for bars, the rest for the number at the end of the longest
STYLE: Final = """
.rates { display: grid; grid-template-columns: minmax(150px, 230px) 1fr; gap: 14px 16px; align-items: center; }
.legend, .rates { margin: 12px 0; }
.rates > div { font-size: 13.5px; }
.rates svg { width: 100%; display: block; overflow: visible; }
.rates text { font-size: 12px; fill: var(--ink); font-variant-numeric: tabular-nums; dominant-baseline: central; }
.apache { fill: var(--series-6); } .lockstep { fill: var(--series-1); } .lockstep_memory { fill: var(--series-2); }
.rates circle { fill: var(--ink); stroke: var(--card); stroke-width: 1; }
.legend svg { margin-right: 6px; } .legend { gap: 4px 16px; }
@media (max-width: 640px) { .rates { grid-template-columns: 1fr; gap: 2px; } .rates svg { margin-bottom: 12px; } }
"""


def bench_page(report: Report) -> str:
    """The whole document."""
    machine = report.machine
    about = (
        f"{machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, {machine['date']}. Medians; a dot "
        "is one round. Rates depend on the machine and on other work there: compare the ratios. CPU time is that of "
        "all threads of the broker, for a message or call."
    )
    parts = [_group(report, group, title) for group, title in GROUPS.items()]
    main = tag(
        "main",
        tag("h1", "Apache RocketMQ's broker and Lockstep's, side by side"),
        tag("p", about, class_="note"),
        _floors(report),
        _better(report),
        *parts,
        _apart(report),
        tag("footer", "Made by make bench APACHE=1."),
    )
    return document("Lockstep and Apache RocketMQ: speed", main, style=STYLE)


def _floors(report: Report) -> Markup:
    rows = [
        [one.work, one.against, one.how, one.floor, one.seen,
         tag("span", "met" if one.met else "missed", class_="good-text" if one.met else "bad-text")]
        for one in verdicts(report)
    ]  # fmt: skip
    return card("Floors", None, table(["work of Lockstep", "against", "compared", "#floor", "#seen", "#"], rows))


def _better(report: Report) -> Markup | None:
    found = report.apache_is_better()
    if not found:
        return None
    items = [tag("li", one) for one in found]
    note = "The same client on both brokers; the ratio is Lockstep's rate over Apache's."
    return card("Where Apache's broker is faster", note, tag("ul", *items))


def _group(report: Report, group: str, title: str) -> Markup | None:
    names = [name for name in WORKS if WORKS[name][0] == group and name in report.cases]
    if not names:
        return None
    keys = [key for key in KEYS if any(key in report.cases[name].samples for name in names)]
    legend = [tag("span", _swatch(key), TITLES[key], class_="key") for key in keys]
    pairs = [piece for name in names for piece in (tag("div", WORKS[name][1]), _bars(report.cases[name]))]
    numbers = table(_numbers(HEAD), report.rows(group))
    return card(
        title[0].upper() + title[1:],
        None,
        tag("div", *legend, class_="legend"),
        tag("div", *pairs, class_="rates"),
        tag("details", tag("summary", "Numbers"), numbers),
    )


def _swatch(key: str) -> Markup:
    return swatch(tag("rect", class_=key, width=12, height=12, rx=2), width=12, height=12)


def _bars(case: Case) -> Markup:
    keys = [key for key in KEYS if key in case.samples]
    longest = max(sample.rate for key in keys for sample in case.samples[key])
    pieces: list[Markup] = []
    for place, key in enumerate(keys):
        y, median = place * (BAR + GAP), case.median(key)
        x = 100 * TEXT_SHARE / longest
        rates = [sample.rate for sample in case.samples[key]]
        spread = f"{TITLES[key]}: median {median:,.0f}, from {min(rates):,.0f} to {max(rates):,.0f}"
        bar = tag("rect", tag("title", spread), class_=key, y=y, width=f"{median * x:.2f}%", height=BAR, rx=3)
        dots = [tag("circle", cx=f"{rate * x:.2f}%", cy=y + BAR / 2, r=DOT) for rate in rates]
        text = tag("text", f"{median:,.0f}", x=f"{max(rates) * x:.2f}%", dx=8, y=y + BAR / 2)
        pieces += [bar, *dots, text]
    label = ", ".join(f"{TITLES[key]} {case.median(key):,.0f}" for key in keys)
    return tag("svg", join(*pieces), height=len(keys) * (BAR + GAP) - GAP, role="img", aria_label=label)


def _apart(report: Report) -> Markup | None:
    rows = report.other_rows()
    if not rows:
        return None
    heads = _numbers(("", TITLES[APACHE], "Lockstep"))
    return card("Start, memory, and how long queues rest", None, table(heads, rows))


def _numbers(heads: Sequence[str]) -> list[str]:
    """All columns but the first are numbers."""
    return [heads[0], *[f"#{head}" for head in heads[1:]]]
