"""The tables of speed are those of the figures that are kept."""

from pathlib import Path

import pytest

from scripts.bench.apache.publish import PAGES, rewritten


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_of_speed_are_those_of_the_figures(path: Path) -> None:
    """Nobody writes them by hand: `python -m scripts.bench.apache.publish` makes them from docs/benchmarks.json."""
    assert path.read_text(encoding="utf-8") == rewritten(path)
