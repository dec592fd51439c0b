"""The HTML file: verdict, plots and tables of each history, in one file that needs no network."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lockstep.pipeline.report.colours import themed
from lockstep.pipeline.report.findings import Findings, Row
from lockstep.pipeline.report.plots import handover_plot, lag_plot, owner_colours, owners_plot, rate_plot

__all__ = ["RULES", "Spoilt", "page", "short_client", "write_page"]

RULES: Final = {
    "a": "a message of a key was handled for the first time before an earlier one of that key",
    "b": "a repeat that is no contiguous rewind, in a new period, to the last stored commit or above",
    "c": "two owners of one queue handled messages at the same time",
    "d": "a message that nobody handled, or a commit that went back without a reset",
}
"""The definition of docs/order.md, a sentence a rule."""
_CAUSES: Final = {
    "takeover": "the last owner ended before it had committed",
    "suspend": "the listener failed and got them again",
    "reset": "the offset was moved on purpose",
    "producer retry": "one message stored twice: a retried send",
    "unexplained": "part of a repeat that is a violation",
}
_OFFSETS_SHOWN: Final = 12


class Spoilt(NamedTuple):
    """Traces that were spoilt on purpose, and whether the audit found what was done to them."""

    name: str
    expected: Sequence[str]  # what must be found, a violation's kind above all; none: nothing may be
    found: Sequence[str]

    @property
    def is_found(self) -> bool:
        """All of it, and nothing else."""
        return set(self.expected) == set(self.found)


def write_page(path: Path, title: str, histories: Sequence[Findings], spoilt: Sequence[Spoilt] = ()) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(title, histories, spoilt), encoding="utf-8")


def page(title: str, histories: Sequence[Findings], spoilt: Sequence[Spoilt] = ()) -> str:
    """The whole document."""
    loader = PackageLoader("lockstep.pipeline.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "number": _number, "ms": _ms, "clock": _clock, "shown": _shown, "file": _file_name, "client": short_client,
    }  # fmt: skip
    style, _, _ = loader.get_source(environment, "style.css")
    return environment.get_template("report.html.j2").render(
        title=title,
        style=Markup(style),
        histories=[_view(findings) for findings in histories],
        spoilt=spoilt,
        rules=RULES,
        causes=_CAUSES,
    )


def _view(findings: Findings) -> dict[str, Any]:
    """What the template shows of a history."""
    plots = {
        "rate": rate_plot(findings),
        "lag": lag_plot(findings),
        "owners": owners_plot(findings),
        "handovers": handover_plot(findings),
    }
    colours = owner_colours(findings)
    return {
        "name": findings.history,
        "findings": findings,
        "summary": findings.summary,
        "plots": {name: Markup(svg) for name, svg in plots.items()},
        "owners": [(short_client(client), themed(colour)) for client, colour in colours.items()],
        "violations": sum(row["violations"] for row in findings.violation_counts),
        "overlaps": sum(row["violations"] for row in findings.violation_counts if row["kind"] == "overlap"),
        "longest": findings.handovers[:10],
        "latency": {name: _of_measure(findings.latency, name) for name in ("handling", "lag")},
    }


def _of_measure(rows: Sequence[Row], measure: str) -> list[Row]:
    return [row for row in rows if row["measure"] == measure]


def short_client(client_id: str) -> str:
    """ "10.0.0.7@4711#3" without what a person does not tell clients apart by: host and process remain."""
    return client_id.partition("#")[0] or client_id


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ms(value: float | None) -> str:
    """ "0.42 ms", "12 ms", "3.4 s" """
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _clock(value_ms: int | None) -> str:
    if value_ms is None:
        return "-"
    moment = datetime.fromtimestamp(value_ms / 1000, UTC)
    return moment.strftime("%H:%M:%S.") + f"{value_ms % 1000:03}"


def _shown(values: Sequence[object] | None) -> str:
    """A few of a long list."""
    found = [str(value) for value in values or () if value is not None]
    more = f" … {len(found) - _OFFSETS_SHOWN} more" if len(found) > _OFFSETS_SHOWN else ""
    return ", ".join(found[:_OFFSETS_SHOWN]) + more


def _file_name(place: str) -> str:
    """The end of a path or URI: the folder is the same for all of them."""
    return place.rsplit("/", 1)[-1]
