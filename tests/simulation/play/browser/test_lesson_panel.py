"""Lessons on the page, in Chromium, with the keyboard alone: the question, the touch, the answer, the next one."""

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from lockstep.simulation.play.lessons.lesson import Lesson
from lockstep.simulation.play.lessons.registry import LESSONS
from lockstep.simulation.play.lessons.words import WORDS
from tests.browser import NEEDS_BROWSER

pytestmark = [NEEDS_BROWSER, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(300)]

WALKED = ("key", "owner", "suspend")  # the first three, one after the other
BY_HAND = "Send a message with key3", "发送键为 key3 的消息"
TABS_MAX = 120
ACTS = "**/do"


def focus(page: Page, css: str, text: str = "") -> None:
    """Press Tab until an element has the focus."""
    wanted = "([css, text]) => document.activeElement.matches(css) && document.activeElement.textContent.includes(text)"
    for _ in range(TABS_MAX):
        if page.evaluate(wanted, [css, text]):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no way with Tab to {css} {text}")


def press(page: Page, css: str, text: str = "") -> None:
    focus(page, css, text)
    page.keyboard.press("Enter")


def slowly(route: Route) -> None:
    """What is watched comes to its question by itself in five seconds: not before a busy machine has pressed a key."""
    act = json.loads(route.request.post_data or "")
    route.continue_(post_data=json.dumps(act | {"times": 0.1} if act["act"] == "speed" else act))


def answer(page: Page, lesson: Lesson, language: str) -> None:
    """Go to the question, and choose the first answer."""
    expect(page.locator(".lesson h3")).to_have_text(getattr(lesson.title, language))
    press(page, ".lesson button", getattr(WORDS["skip"], language))
    expect(page.locator(".lesson .question")).to_have_text(getattr(lesson.question, language))
    expect(page.locator("#at")).to_have_text(f"{lesson.watch_ms / 1000:.1f} s")
    page.unroute(ACTS)
    press(page, ".lesson .choices button", getattr(lesson.choices[0], language))


@pytest.mark.parametrize(("language", "width"), [("en", 1280), ("zh", 390)])
def test_lessons_by_keyboard(play: Callable[..., str], page: Page, language: str, width: int) -> None:
    """The first is touched by hand, the others are shown. What was seen is kept over a new start of the page."""
    page.set_viewport_size({"width": width, "height": 800})
    address = play()
    page.goto(f"{address}?lang={language}")
    press(page, "#lessons summary")
    page.route(ACTS, slowly)
    press(page, ".lesson-list button", getattr(LESSONS["key"].title, language))
    for number, key in enumerate(WALKED):
        lesson = LESSONS[key]
        answer(page, lesson, language)
        for _ in lesson.touches if not number else ():
            expect(page.locator(".lesson button", has_text=getattr(WORDS["show"], language))).to_be_visible()
            press(page, '[data-touch="host"][data-thing="producer"]')
            press(page, "#menu .item", BY_HAND[language == "zh"])
        if number == 2:
            page.route(ACTS, slowly)
        if number:
            focus(page, ".lesson button", getattr(WORDS["show"], language))
            page.evaluate("(show => (show.click(), show.click()))(document.activeElement)")  # a double click
        if number == 2:  # what is undone is asked for again
            expect(page.locator("#plan li")).to_have_count(1)
            page.keyboard.press("u")
            expect(page.locator(".lesson button", has_text=getattr(WORDS["show"], language))).to_be_visible()
            page.unroute(ACTS)
            press(page, ".lesson button", getattr(WORDS["show"], language))
        expect(page.locator(".lesson .why")).to_have_text(getattr(lesson.answer, language))
        expect(page.locator(".lesson .missing")).to_have_count(0)
        expect(page.locator("#plan li")).to_have_count(len(lesson.touches))
        done = getattr(WORDS["count"], language).format(done=number + 1, count=len(LESSONS))
        expect(page.locator("#lessons summary")).to_contain_text(done)
        page.route(ACTS, slowly)
        press(page, ".lesson button", getattr(WORDS["next"], language))
    expect(page.locator(".lesson h3")).to_have_text(re.compile(getattr(LESSONS["ring"].title, language)))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.reload()
    expect(page.locator("#lessons summary")).to_contain_text(f"{len(WALKED)}")


def test_skip_before_it_plays(play: Callable[..., str], page: Page) -> None:
    """Who goes to the question while the run only begins to play comes there: the play does not go on after it."""
    page.goto(f"{play()}?lang=en")
    press(page, "#lessons summary")
    held: list[Route] = []

    def hold_speed(route: Route) -> None:
        act = json.loads(route.request.post_data or "")["act"]
        held.append(route) if act == "speed" else route.continue_()

    page.route(ACTS, hold_speed)
    press(page, ".lesson-list button", LESSONS["key"].title.en)
    expect(page.locator(".lesson h3")).to_have_text(LESSONS["key"].title.en)
    while not held:  # the act has left the page
        page.wait_for_timeout(10)
    press(page, ".lesson button", WORDS["skip"].en)
    slowly(held[0])
    expect(page.locator(".lesson .question")).to_have_text(LESSONS["key"].question.en)
