"""Pictures of growth as SVG files: with other colours where the page is dark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["draw"]

INK: Final = "#59636e"
LINES: Final = ("#0969da", "#9a6700", "#1a7f37")
# The colours stand in the style of each element, and are those of a light page.
_DARK: Final = {INK: "#9da7b3", "#0969da": "#58a6ff", "#9a6700": "#e3b341", "#1a7f37": "#56d364"}
_RULES: Final = "".join(
    f'[style*="{what}: {light}"] {{{what}: {dark} !important}}\n'
    for light, dark in _DARK.items()
    for what in ("fill", "stroke")
)
_STYLE: Final = f"<style>@media (prefers-color-scheme: dark) {{\n{_RULES}}}</style>"
mpl.rcParams |= {
    "svg.hashsalt": "growth", "svg.fonttype": "none", "font.family": "sans-serif", "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
}  # fmt: skip


def draw(
    path: Path,
    title: str,
    labels: tuple[str, str],
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    is_log: bool = False,
) -> None:
    """Write one picture.

    Args:
        labels: Of the axis of sizes, which is logarithmic, and of the other, which begins at 0.
        lines: Points (size, figure) by name.
        is_log: The other axis is logarithmic too.
    """
    picture, axes = plt.subplots(figsize=(7, 3))
    for colour, (name, points) in zip(LINES, lines.items(), strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
    axes.set_xscale("log")
    if is_log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.15 * max(figure for points in lines.values() for _, figure in points))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_title(title)
    axes.grid(visible=True, color=INK, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    picture.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(picture)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<defs>", f"{_STYLE}\n <defs>", 1), encoding="utf-8")
