"""Plots in the page's own colours: matplotlib draws in stand-ins, which become CSS variables that follow the theme."""

from typing import Final

__all__ = ["BAD", "GRID", "INK", "MUTED", "SERIES", "WARN", "themed"]

INK: Final = "#010101"
MUTED: Final = "#010102"
GRID: Final = "#010103"
BAD: Final = "#010104"
WARN: Final = "#010105"
SERIES: Final = tuple(f"#0102{number:02x}" for number in range(8))

_VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    BAD: "--bad",
    WARN: "--warn",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)},
}


def themed(svg: str) -> str:
    """A drawing whose stand-ins are var(--...) of style.css."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
