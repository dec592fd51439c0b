"""Figures of a measurement: rates and percentiles."""

from collections.abc import Sequence
from typing import Any, Final

from lockstep.cli.output import OutputFormat, json_line, print_rows, write_out

__all__ = ["percentiles", "print_figures", "share"]

_SHARES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}


def share(times: Sequence[float], part: float) -> float:
    """The smallest of the sorted `times` that at least this part of them does not exceed; 0 of none."""
    if not times:
        return 0.0
    return times[min(max(-int(-len(times) * part // 1), 1), len(times)) - 1]


def percentiles(times_ns: Sequence[int]) -> dict[str, float]:
    """Milliseconds: p50, p90, p99, p999 and the longest."""
    ordered = sorted(times_ns)
    found = {name: round(share(ordered, part) / 1e6, 3) for name, part in _SHARES.items()}
    return {**found, "max_ms": round(share(ordered, 1) / 1e6, 3)}


def print_figures(rows: Sequence[dict[str, Any]], output: OutputFormat) -> None:
    """With JSON one object a line; else a table."""
    if output is OutputFormat.JSON:
        write_out("".join(json_line(row) + "\n" for row in rows).encode())
    else:
        print_rows(list(rows[0]), rows, output)
