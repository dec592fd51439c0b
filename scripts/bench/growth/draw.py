"""Pictures of growth as SVG files: colours that can be read on a light page and on a dark one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

INK: Final = "#7d8590"
LINES: Final = ("#2f81f7", "#d29922", "#3fb950")
mpl.rcParams |= {
    "svg.hashsalt": "growth", "svg.fonttype": "none", "font.family": "sans-serif", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
}  # fmt: skip


def draw(path: Path, title: str, labels: tuple[str, str], lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Write one picture.

    Args:
        labels: Of the axis of sizes, which is logarithmic, and of the other, which begins at 0.
        lines: Points (size, figure) by name.
    """
    picture, axes = plt.subplots(figsize=(7, 3))
    for colour, (name, points) in zip(LINES, lines.items(), strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.15 * max(figure for points in lines.values() for _, figure in points))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    axes.grid(visible=True, color=INK, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    picture.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(picture)
