"""The application around the pages: which hosts and forms it takes, languages, and what a failure looks like."""

import re
from pathlib import Path

from lockstep.console.collector import Collector
from lockstep.console.formats import clock_ms, date_time
from lockstep.console.guard import is_trusted_host
from lockstep.console.render import PAGES
from lockstep.console.translations.choose import TEXTS, Texts, choose_language
from tests.console.pages_inside import ask, make_console
from tests.rows import by_row

TEMPLATES = Path(__file__).parents[2] / "console/templates"


@by_row(
    "host, trusted",
    [
        ("127.0.0.1:8088", True),
        ("localhost:8088", True),
        ("[::1]:8088", True),
        ("192.168.1.5", True),
        ("console.lan", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_a_host_is_an_address_or_our_name(host: str, trusted: bool) -> None:
    """A site that makes its name point to this machine sends its own name as Host."""
    assert is_trusted_host(host, "console.lan") is trusted


async def test_a_foreign_host_gets_nothing() -> None:
    """DNS rebinding: the request reaches us, and its Host is not ours."""
    answer = await ask(make_console(), "/", headers={"host": "evil.example"})
    assert answer.status == 400
    assert "<html" not in answer.text


@by_row(
    "origin, status",
    [
        (None, 403),
        *((origin, 403) for origin in ("", "null", "http://[x", "127.0.0.1:8088", "//127.0.0.1:8088")),
        ("http://evil.example", 403),
        ("http://127.0.0.1", 403),
        ("http://127.0.0.1:9999", 403),
        ("http://127.0.0.1:80880", 403),
        ("http://127.0.0.1:8088.evil.example", 403),
        ("http://evil.example.127.0.0.1:8088", 403),
        ("http://127.0.0.1:8088@evil.example", 403),
        ("http://evil@127.0.0.1:8088", 403),
        ("http://evil.example/127.0.0.1:8088", 403),
        ("http://127.0.0.1:8088", 405),
        ("https://127.0.0.1:8088", 405),
    ],
)
async def test_a_form_of_another_site_is_refused(origin: str | None, status: int) -> None:
    """A POST needs our own Origin, whatever its path: the whole host and port, no part of them. 405: it has passed."""
    headers = {} if origin is None else {"origin": origin}
    assert (await ask(make_console(), "/", method="POST", headers=headers)).status == status


@by_row("path", PAGES.values())
async def test_a_page_may_load_only_what_is_ours(path: str) -> None:
    """No inline script or style, no other host: the header says so, and the page keeps to it."""
    answer = await ask(make_console(), path)
    assert answer.status in (200, 502)
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert not re.search(r"\son\w+=|style=|<style|<script(?! src=\"/static/)", answer.text)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)


async def test_what_is_not_there_is_a_page() -> None:
    """An unknown address has the navigation too."""
    answer = await ask(make_console(), "/nowhere")
    assert answer.status == 404
    assert "There is no such page." in answer.text


async def test_a_reader_chooses_a_language() -> None:
    """The choice goes to a cookie, and the cookie goes before what the browser prefers."""
    console = make_console()
    answer = await ask(console, "/?topic=orders&lang=zh")
    assert answer.status == 303
    assert answer.headers["location"] == "/?topic=orders"
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert '<html lang="zh">' in (await ask(console, "/", headers={"cookie": cookie})).text


async def test_a_choice_of_language_stays_on_this_site() -> None:
    """A path with two slashes would be the name of another one."""
    answer = await ask(make_console(), "//evil.example/?lang=zh")
    assert answer.headers["location"] == "/evil.example/"


async def test_a_name_that_is_no_utf_8() -> None:
    """A client's JSON may hold half of a pair of surrogates: the page is shown all the same."""
    collector = Collector()
    collector.broker_failed("broker-\ud800", "127.0.0.1:1", "no answer", 1)
    assert "broker-?" in (await ask(make_console(collector), "/")).text


def test_times_beyond_the_calendar() -> None:
    """A producer can say any time of birth, and a member any start."""
    assert date_time(1_700_000_000_042) == "2023-11-14 22:13:20.042"
    assert (clock_ms(1_700_000_000_042), clock_ms(0)) == ("22:13:20.042", "\N{EN DASH}")
    assert date_time(2**62) == f"{2**62} ms"
    assert date_time(-(2**62)) == f"{-(2**62)} ms"


@by_row(
    "chosen, accepted, language",
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, en;q=0.5, zh;q=0.7", "zh"),
        (None, "zh;q=much, en", "en"),
        ("en", "zh", "en"),
        ("xx", "zh", "zh"),
    ],
)
def test_which_language(chosen: str | None, accepted: str, language: str) -> None:
    """The reader's choice, then what the browser prefers, then English."""
    assert choose_language(chosen, accepted) == language


def test_every_text_is_in_both_languages() -> None:
    """No text is empty, and both take the same fields."""
    fields = re.compile(r"{(\w+)}")
    for key, texts in TEXTS.items():
        assert all(texts), key
        assert sorted(fields.findall(texts[0])) == sorted(fields.findall(texts[1])), key


def test_templates_use_texts_that_exist() -> None:
    """A key that is written out in a template is in the table."""
    used = {
        (path.name, key)
        for path in TEMPLATES.glob("*.html")
        for key in re.findall(r"\bt\(\"([\w.]+)\"\s*[,)]", path.read_text(encoding="utf-8"))
    }
    assert used
    assert not [place for place in used if place[1] not in TEXTS]
    assert Texts("zh")("nav.order") == TEXTS["nav.order"][1]
