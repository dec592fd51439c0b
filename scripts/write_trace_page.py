"""Writes docs/trace.md from the tables of the trace format."""

from pathlib import Path

from lockstep.order.traces.format import trace_page

PAGE = Path(__file__).parents[1] / "docs" / "trace.md"

if __name__ == "__main__":
    PAGE.write_text(trace_page(), encoding="utf-8")
