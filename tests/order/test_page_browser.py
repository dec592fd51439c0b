"""The report page in a real browser: zoom, keys, buttons, dragging, the legend. Skipped where there is no Chromium."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.order.page import page
from lockstep.order.page.axis import Axis
from tests.browser import NEEDS_BROWSER, said_by
from tests.order.page_runs import judged, shared
from tests.order.test_page import corrupted

pytestmark = NEEDS_BROWSER

ASKS = """
const plots = document.querySelector(".plots");
const key = (name) => plots.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const press = (name) => plots.querySelector(`[data-do=${name}]`).click();
const point = (what, share) => {
  const box = plots.querySelector(".ticks").getBoundingClientRect();
  const at = { button: 0, clientX: box.left + share * box.width, clientY: box.top + 5, bubbles: true };
  plots.querySelector(".ticks").dispatchEvent(new PointerEvent(what, at));
};
const note = (name) => {
  const [bar, mark, curve] = ["rect.bar", ".mark", ".zoomed"].map((what) => plots.querySelector(what));
  results[name] = {
    said: plots.querySelector(".window").textContent,
    ticks: [...plots.querySelectorAll(".ticks span")].map((one) => one.textContent),
    lines: plots.querySelectorAll(".grid line").length,
    bar: [parseFloat(bar.style.getPropertyValue("--x")), parseFloat(bar.style.getPropertyValue("--w"))],
    mark: mark && parseFloat(mark.getAttribute("x")),
    curve: curve.getAttribute("transform"),
    off: [...plots.querySelectorAll("[data-do]:disabled")].map((one) => one.dataset.do),
    width: document.documentElement.scrollWidth,
  };
};
"""
ZOOMS = """
note("begin"); press("in"); note("in"); press("right"); note("right"); press("left"); note("left again");
key("-"); note("out"); key("+"); key("ArrowLeft"); key("ArrowLeft"); key("ArrowLeft"); note("at the left end");
key("0"); note("all"); point("pointerdown", 0.25); point("pointermove", 0.4); point("pointerup", 0.5); note("dragged");
for (let i = 0; i < 80; i++) key("+"); note("deepest"); key("Escape"); note("reset");
point("pointerdown", 0.3); key("Escape"); point("pointerup", 0.6); note("given up");
document.querySelector(".goto").click(); note("finding");
"""


def asked(folder: Path, text: str, acts: str, width: int = 1280) -> dict[str, Any]:
    return said_by(folder, text, ASKS + acts, width)


def test_all_plots_zoom_together(tmp_path: Path) -> None:
    """Buttons, keys and dragging set one window of time, and all plots follow; 0 and Escape show all."""
    run = corrupted()
    found = asked(tmp_path, page("An audit", [run]), ZOOMS)
    begin = found["begin"]
    assert begin["said"] == "all 60.0 s"
    assert begin["off"] == ["out", "left", "right", "all"]
    assert found["in"]["said"] == "30.0 s of 60.0 s, from 15.0 s"
    assert found["in"]["bar"] == [0, pytest.approx(2 * begin["bar"][1] - 50, abs=0.01)]  # what is left of it in sight
    assert found["in"]["curve"] == "matrix(2 0 0 1 -500 0)"
    assert found["right"]["said"] == "30.0 s of 60.0 s, from 22.5 s"
    assert found["left again"] == found["in"]
    assert {**found["out"], "off": begin["off"]} == begin
    assert found["at the left end"]["said"] == "30.0 s of 60.0 s, from 0 ms"
    assert found["at the left end"]["off"] == ["left"]
    assert found["dragged"]["said"] == "15.0 s of 60.0 s, from 15.0 s"
    assert found["deepest"]["said"].startswith("0.001 ms of 60.0 s")
    assert found["all"] == found["reset"] == found["given up"] == begin
    assert 0 <= found["finding"]["mark"] <= 100
    assert all(state["lines"] == len(state["ticks"]) > 1 for state in found.values())


@pytest.mark.long
@pytest.mark.parametrize("span_ms", [4, 900, 30 * 3_600_000])
def test_the_browser_writes_times_as_the_page_does(tmp_path: Path, span_ms: int) -> None:
    """The ticks of page.js are those of axis.py, for as many ticks as fit."""
    run = judged(shared(2, 2, span_ms))
    (state,) = asked(tmp_path, page("An audit", [run]), 'note("begin");').values()
    axis = Axis([(bar.from_ns, bar.to_ns) for bar in run.owners])
    assert state["ticks"] in [[tick.text for tick in axis.ticks(count=count)] for count in range(2, 10)]


@pytest.mark.long
def test_the_page_fits_a_narrow_window(tmp_path: Path) -> None:
    """Nothing is wider than the window: only tables scroll, inside their cards."""
    found = asked(tmp_path, page("An audit", [corrupted()]), 'note("begin");', width=500)
    assert found["begin"]["width"] <= 500


@pytest.mark.long
def test_owners_alone(tmp_path: Path) -> None:
    """A pressed button of the legend makes the bars of other owners faint, until it is pressed again."""
    acts = """
    const dims = () => [...plots.querySelectorAll("rect.bar.dim")].map((one) => one.dataset.o);
    const button = document.querySelector(".legend button[data-o='2']");
    button.click(); results.alone = dims(); results.pressed = button.getAttribute("aria-pressed");
    button.click(); results.again = dims();
    """
    found = asked(tmp_path, page("An audit", [judged(shared(3, 6, 60_000))]), acts)
    assert (set(found["alone"]), found["pressed"], found["again"]) == ({"1", "3"}, "true", [])
