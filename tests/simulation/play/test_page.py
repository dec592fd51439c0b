"""The page of a played run, without a browser: its routes and guard, its texts, its size."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from lockstep.simulation.articles.registry import find_section
from lockstep.simulation.play.page.app import make_app
from lockstep.simulation.play.page.reading import docs_parts
from lockstep.simulation.play.page.texts import TEXTS, THINGS, texts_in
from lockstep.simulation.play.refusal import RefusedError
from tests.console.pages_inside import ask_app

PAGE = Path(__file__).parents[3] / "simulation/play/page"
PAGE_BYTES_MAX = 400_000
OURS = {"host": "127.0.0.1:8088", "origin": "http://127.0.0.1:8088", "x-token": "token"}


class Told:
    """A session that writes down what it is told, and refuses one thing."""

    token = "token"

    def __init__(self) -> None:
        self.acts: list[dict[str, Any]] = []

    async def do(self, act: dict[str, Any]) -> None:
        if act.get("act") == "refused":
            raise RefusedError("That cannot be done now.")
        self.acts.append(act)

    async def scenes(self) -> AsyncIterator[dict[str, Any]]:
        yield {"run": 1}
        yield {"run": 2}

    async def judged(self) -> None:
        """All is."""

    async def home(self) -> dict[str, str]:
        return {"command": "lockstep-sim run takeover"}

    async def timeline(self) -> str:
        return "<!doctype html>"


def app_of(session: Told) -> Starlette:
    return make_app(session)


async def test_an_act_reaches_the_session_and_a_refusal_the_user() -> None:
    session = Told()
    act = {"act": "touch", "line": "kill c1"}
    done = await ask_app(app_of(session), "/do", method="POST", headers=OURS, body=json.dumps(act).encode())
    assert (done.status, session.acts) == (200, [act])
    said = await ask_app(app_of(session), "/do", method="POST", headers=OURS, body=b'{"act": "refused"}')
    assert (said.status, json.loads(said.text)) == (400, {"error": "That cannot be done now."})


async def test_an_act_that_is_not_of_this_page() -> None:
    """Of another origin, without the token, or no object: nothing is done."""
    session = Told()
    body = b'{"act": "play"}'
    for headers, status in (
        (OURS | {"origin": "http://evil.example"}, 403),
        (OURS | {"x-token": "another"}, 403),
        ({"host": "evil.example"}, 400),
    ):
        answer = await ask_app(app_of(session), "/do", method="POST", headers=headers, body=body)
        assert answer.status == status
    for text in (b"[]", b"{", b"", b"[" * 9000):
        assert (await ask_app(app_of(session), "/do", method="POST", headers=OURS, body=text)).status == 400
    assert session.acts == []


async def test_scenes_are_events() -> None:
    answer = await ask_app(app_of(Told()), "/scenes")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith('event: scene\ndata: {"run":1}\n\nevent: scene\ndata: {"run":2}\n\n')


async def test_the_page_in_both_languages() -> None:
    for language, word in (("en", "What happened"), ("zh", "发生了什么")):
        answer = await ask_app(app_of(Told()), "/", headers={"accept-language": language})
        assert (answer.status, f'<html lang="{language}">' in answer.text) == (200, True)
        assert word in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_the_page_is_small_and_loads_nothing_from_elsewhere() -> None:
    """With its style, its script and the console's style."""
    page = (await ask_app(app_of(Told()), "/")).text
    names = ["style.css", *(path.name for path in (PAGE / "static").iterdir())]
    parts = [(await ask_app(app_of(Told()), f"/static/{name}")).text for name in names]
    assert all(parts)
    assert sum(len(part.encode()) for part in [page, *parts]) < PAGE_BYTES_MAX
    loaded = re.findall(r"""(?:src|href|url|from|import|fetch)\W{1,3}(\w+:)?//""", "".join([page, *parts]))
    assert loaded == []


def test_every_text_is_in_both_languages() -> None:
    """No text is empty, and both take the same fields."""
    fields = re.compile(r"{(\w+)}")
    for key, texts in TEXTS.items():
        assert all(texts), key
        assert sorted(fields.findall(texts[0])) == sorted(fields.findall(texts[1])), key


def test_templates_and_scripts_use_texts_that_exist() -> None:
    """A key that is written out is in the table; `touch.` and others are made of two parts."""
    templates = "".join(path.read_text("utf-8") for path in (PAGE / "templates").iterdir())
    scripts = "".join(path.read_text("utf-8") for path in (PAGE / "static").glob("*.js"))
    used = set(re.findall(r"""\bt\["([\w.-]+)"\]""", templates)) | set(re.findall(r"""\bt\("([\w.-]+)\"""", scripts))
    chosen = re.findall(r"""\bt\([^()]*\? "([\w.-]+)" : "([\w.-]+)\"""", scripts)
    used |= {key for both in chosen for key in both}
    faults = re.findall(r"""\b(?:once|lasting)\("([\w-]+)\"""", scripts)
    used |= {f"touch.{fault}" for fault in faults}
    assert len(used) > 80
    assert sorted(used - TEXTS.keys()) == []


def test_each_thing_is_explained() -> None:
    """It has a sentence, a part of the docs, and a section of the articles where it names one."""
    for name, thing in THINGS.items():
        assert f"thing.{name}" in TEXTS
        page, _, part = thing.doc.partition("#")
        assert not part or part in {one.id for one in docs_parts(page, texts_in("en"))}, thing.doc
        assert not thing.section or find_section(thing.section)


async def test_a_page_of_the_docs_and_a_section() -> None:
    assert 'id="a-consumers-queue"' in (await ask_app(app_of(Told()), "/docs/order.md")).text
    assert "LOCK_BATCH_MQ" in (await ask_app(app_of(Told()), "/article/1/2.2.2")).text
    for path in ("/docs/..md", "/docs/app.py", "/article/9/9", "/static/app.py", "/static/none.js"):
        assert (await ask_app(app_of(Told()), path)).status == 404
