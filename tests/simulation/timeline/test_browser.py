"""The page of a timeline in a real browser: zoom, steps, hover, violations. Skipped where there is no Chromium."""

from pathlib import Path
from typing import Any

import pytest

from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.output import page_of
from tests.browser import NEEDS_BROWSER, said_by
from tests.simulation.timeline.runs import takeover, wide

pytestmark = [NEEDS_BROWSER, pytest.mark.long]

ASKS = """
const plots = document.querySelector(".plots"), box = document.querySelector(".steps");
const key = (name, where = plots) => where.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const always = { bubbles: true, cancelable: true };
const wheel = (more) => plots.querySelector(".ticks").dispatchEvent(new WheelEvent("wheel", { ...always, ...more }));
const shown = () => plots.querySelector(".window").textContent;
const chosen = () => [...document.querySelectorAll("tr.on")].map((row) => row.cells[1].firstChild.textContent);
const within = () => [...box.querySelectorAll("tbody tr:not(.out)")].length;
"""


def asked(folder: Path, runs: list[Evidence], acts: str, width: int = 1280) -> dict[str, Any]:
    return said_by(folder, page_of("a timeline", runs), ASKS + acts, width)


def test_wheel_buttons_and_keys_move_lanes_and_steps(tmp_path: Path) -> None:
    """Ctrl and the wheel zoom, Shift and the wheel move, a plain wheel leaves the page its scroll; steps follow."""
    acts = """
    results.all = [shown(), within()];
    results.plain = wheel({ deltaY: 100 }); results.unmoved = shown();
    results.taken = wheel({ deltaY: -100, ctrlKey: true });
    for (let i = 0; i < 6; i++) wheel({ deltaY: -100, ctrlKey: true, clientX: 0 });
    results.zoomed = [shown(), within()];
    wheel({ deltaY: 800, shiftKey: true }); results.moved = shown();
    plots.querySelector("[data-do=all]").click(); results.again = [shown(), within()];
    """
    found = asked(tmp_path, [takeover()], acts)
    assert found["all"] == found["again"]
    assert found["all"][0] == found["unmoved"] == "all 100.0 s"
    assert (found["plain"], found["taken"]) == (True, False)  # whether the browser may go on with its own
    assert found["zoomed"][0] == "21.0 s of 100.0 s, from 0 ms"
    assert 0 < found["zoomed"][1] < found["all"][1]
    assert found["moved"] == "21.0 s of 100.0 s, from 21.0 s"


def test_keys_choose_steps(tmp_path: Path) -> None:
    """n and p in the lanes, the arrows in the list: the step is marked in both, told, and brought into sight."""
    acts = """
    key("n"); results.first = chosen(); key("n"); key("n"); key("p"); results.second = chosen();
    results.shapes = [...plots.querySelectorAll(".at.on")].length;
    for (let i = 0; i < 8; i++) key("+");
    results.window = shown();
    for (let i = 0; i < 40; i++) key("ArrowDown", box);
    results.last = chosen(); results.told = document.querySelector(".told").textContent; results.moved = shown();
    """
    found = asked(tmp_path, [takeover()], acts)
    assert found["first"] == ["broker starts"]
    assert (found["second"], found["shapes"]) == (["c1 starts"], 1)
    assert found["last"] == ["c2 no longer has the lock of queue 0"]
    assert found["told"] == "95.000 s: c2 no longer has the lock of queue 0; unlocked"
    assert found["moved"] != found["window"]


def test_a_violation_shows_its_two_calls(tmp_path: Path) -> None:
    """v, a click on its diamond and its links bring both calls into sight; both are marked as proof."""
    acts = """
    results.proof = [...plots.querySelectorAll(".shop .proof, .queue rect.proof")].length;
    key("v"); results.key = [shown(), chosen()];
    key("0"); plots.querySelector(".mark").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    results.click = [shown(), chosen()];
    document.querySelectorAll("article a")[1].click(); results.link = chosen();
    """
    found = asked(tmp_path, [takeover()], acts)
    assert found["proof"] == 2
    assert found["key"] == found["click"] == ["all 100.0 s", ["c1 handled offset 3 of queue 0"]]
    assert found["link"] == ["c2 handled offset 3 of queue 0"]


def test_hover_tells_who_when_and_why(tmp_path: Path) -> None:
    """A shape under the pointer has its step and reason in a tip, until the pointer leaves."""
    acts = """
    const tip = document.querySelector(".tip"), corner = { clientX: innerWidth - 9, clientY: innerHeight - 9 };
    const over = (one) => one.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, ...corner }));
    over(plots.querySelector(".own")); results.own = tip.textContent; results.hidden = tip.hidden;
    const at = tip.getBoundingClientRect(); results.fits = at.right <= innerWidth && at.bottom <= innerHeight;
    over(plots.querySelector(".mark")); results.wrong = tip.textContent;
    plots.dispatchEvent(new PointerEvent("pointerleave")); results.gone = tip.hidden;
    """
    found = asked(tmp_path, [takeover()], acts)
    assert found["own"] == "66.000 s: c2 got the lock of queue 0for 29.000 s, 0 renewals; end: unlocked"
    assert found["wrong"] == "c1 and c2 handled queue 0 at once"
    assert (found["hidden"], found["fits"], found["gone"]) == (False, True, True)


def test_two_runs_share_one_axis(tmp_path: Path) -> None:
    """A zoom moves the lanes of both runs alike: the same time is at the same place in each."""
    acts = """
    const stops = [...plots.querySelectorAll(".lane.process .stop")];
    const places = () => stops.map((one) => parseFloat(one.getAttribute("x")));
    results.all = places(); key("+"); results.zoomed = places();
    """
    found = asked(tmp_path, [takeover(), takeover()], acts)
    assert found["all"] == [pytest.approx(5.1), pytest.approx(5.1)]
    assert found["zoomed"][0] == found["zoomed"][1] != found["all"][0]


@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_fits_the_window(tmp_path: Path, width: int) -> None:
    """Nothing is wider than the window, with one queue and with sixty."""
    for runs in ([takeover(), wide(2, 3)], [wide(60, 10)]):
        found = asked(tmp_path, runs, "results.width = document.documentElement.scrollWidth;", width)
        assert found["width"] <= width


def test_without_script_all_is_there(tmp_path: Path) -> None:
    """Places are in the markup: without script lanes and steps are drawn, and only the buttons are gone."""
    page = page_of("a timeline", [takeover()])
    assert ".tools { display: none; }" in page.partition("<noscript>")[2].partition("</noscript>")[0]
    bare = page.partition("<script>")[0] + "</body></html>"
    acts = """
    const [box, field] = [".own", ".queue .field"].map((one) => document.querySelector(one).getBoundingClientRect());
    results.places = [box.left - field.left, box.width].map((one) => Math.round(100 * one / field.width));
    """
    assert said_by(tmp_path, bare, acts)["places"] == [66, 29]
