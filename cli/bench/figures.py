"""Figures of a measurement: rates and percentiles."""

from collections.abc import Sequence
from typing import Any, Final

from lockstep.cli.output import OutputFormat, json_line, print_rows, write_out
from lockstep.remoting.percentiles import percentile

__all__ = ["percentiles", "print_figures"]

_PERCENT: Final = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100}


def percentiles(times_ns: Sequence[int]) -> dict[str, float]:
    """Milliseconds: p50, p90, p99, p999 and the longest."""
    ordered = sorted(times_ns)
    return {name: round(percentile(ordered, percent) / 1e6, 3) for name, percent in _PERCENT.items()}


def print_figures(rows: Sequence[dict[str, Any]], output: OutputFormat) -> None:
    """With JSON one object a line; else a table."""
    if output is OutputFormat.JSON:
        write_out("".join(json_line(row) + "\n" for row in rows).encode())
    else:
        print_rows(list(rows[0]), rows, output)
