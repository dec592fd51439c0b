"""The page Doctor: it looks beside the pages, and says what it found in the reader's language."""

import pytest

from lockstep.client.diagnosis.rules import RULES, Finding
from lockstep.console.pages import doctor
from lockstep.console.pages.doctor import Desk, Examination
from lockstep.console.translations.choose import TEXTS
from tests.console.pages_inside import ask, make_console
from tests.console.readings import NOW_MS


def test_every_rule_has_chinese_words() -> None:
    """A rule that is added needs its consequence and its cure in both languages."""
    for name in RULES:
        assert {f"rule.{name}.so", f"rule.{name}.cure"} <= set(TEXTS)


async def test_no_broker_answers() -> None:
    """The look ends with the reason, and the next one can begin; open pages are told."""
    console = make_console()
    desk = Desk(console)
    async with console.client:
        desk.begin("")
        desk.begin("shop")
        assert list(desk.done) == [], "the second look has to wait"
        assert await console.feed.wait_newer(0, 60)
    assert list(desk.done) == [""]
    assert "127.0.0.1:1" in desk.done[""].error


async def test_an_error_of_ours_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the page would look again at each of its refreshes, and show nothing."""

    async def fails(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(doctor, "gather", fails)
    desk = Desk(make_console())
    desk.begin("")
    assert await desk.console.feed.wait_newer(0, 60)
    assert desk.done[""].error == "OverflowError: too large"


def test_what_breaks_order_is_counted() -> None:
    """Beside the warnings."""
    rows = [("mixed-order", RULES["mixed-order"]), ("flapping", RULES["flapping"])]
    found = tuple(Finding(name, rule.severity, "group g", "e", "c", "c") for name, rule in rows)
    assert Examination(NOW_MS, found, 1).breaking_count == 1


async def test_the_page_first_says_that_it_looks() -> None:
    """A wrong name of a group is refused before anything is asked."""
    console = make_console()
    answer = await ask(console, "/doctor", headers={"accept-language": "zh"})
    assert "正在检查集群" in answer.text
    assert (await ask(console, "/doctor?group=a%20b")).status == 400
