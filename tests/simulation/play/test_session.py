"""The session of a page and the processes that play for it: time, touches, two sides, and what ends by itself."""

import asyncio
import http.client
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.play import session as session_module
from lockstep.simulation.play import side as side_module
from lockstep.simulation.play.choice import Choice, drawn
from lockstep.simulation.play.lessons.registry import LESSONS
from lockstep.simulation.play.page.app import make_app
from lockstep.simulation.play.refusal import RefusedError
from lockstep.simulation.play.session import Session
from lockstep.simulation.search.plan_file import read_plan
from tests.commands import SCRIPTS, TIMEOUT_S, Running
from tests.console.pages_inside import ask_app
from tests.integration.harness.processes import until

pytestmark = pytest.mark.process

_NEVER_S = 120.0  # what has not come by then does not come, however busy the machine is
SMALL = {"consumers": 2, "queues": 2, "rate": 1}


@asynccontextmanager
async def played(*modes: str, life: str = "90s") -> AsyncIterator[Session]:
    """A session; its processes are gone at the end."""
    session = Session(Choice(setup=SMALL | {"life": life}), modes, "token")
    try:
        await session.start()
        yield session
    finally:
        await session.end()
    assert session.pids == []


async def scene_when(session: Session, **wanted: Any) -> dict[str, Any]:
    """The first scene in which each side has these values, when nothing goes on any more."""
    async with asyncio.timeout(_NEVER_S), aclosing(session.scenes()) as scenes:
        async for scene in scenes:
            still = not scene["playing"] and not scene["busy"]
            if still and all(side.get(key) == value for side in scene["sides"] for key, value in wanted.items()):
                return scene
    raise AssertionError("the scenes ended")


def replayed(home: dict[str, str], folder: Path) -> Run:
    """The run of a plan that was taken home."""
    path = folder / home["plan_file"]
    path.write_text(home["plan"], encoding="utf-8")
    _, experiment, plan, _ = read_plan(path)
    return run_plan(experiment, plan)


async def test_a_touched_run_and_its_plan_have_one_hash(tmp_path: Path) -> None:
    """Touched by hand at 30 s, back to 10 s, forward again and to the end: the plan that is taken home makes it."""
    async with played() as session:
        await session.do({"act": "to", "ms": 30_000})
        before = await scene_when(session, now_ms=30_000)
        await session.do({"act": "touch", "line": "kill c1"})
        await session.do({"act": "second"})
        touched = await scene_when(session, now_ms=31_000)
        assert touched["plan"] == touched["touches"] == ["kill c1@30s1ms"]
        hashes = {}
        for ms in (10_000, 30_000, 31_000):
            await session.do({"act": "to", "ms": ms})
            scene = await scene_when(session, now_ms=ms)
            hashes[ms] = scene["sides"][0]["hash"]
        assert hashes[30_000] == before["sides"][0]["hash"]
        assert hashes[31_000] == touched["sides"][0]["hash"]
        assert touched["run"] < scene["run"]
        await session.do({"act": "finish"})
        over = await scene_when(session, over=True)
        again = await asyncio.to_thread(replayed, await session.home(), tmp_path)  # no loop runs there
    assert again.error is None
    assert again.trace_hash[:8] == over["sides"][0]["hash"]


async def test_a_new_touch_drops_the_later_ones() -> None:
    """Back before a touch it stays in the plan; new ones of a moment there replace it, and undo takes them away."""
    async with played() as session:
        await session.do({"act": "to", "ms": 20_000})
        await scene_when(session, now_ms=20_000)  # an act ends a journey where it is
        await session.do({"act": "touch", "line": "kill c1"})
        await session.do({"act": "to", "ms": 5000})
        assert (await scene_when(session, now_ms=5000))["touches"] == ["kill c1@20s1ms"]
        await session.do({"act": "touch", "line": "kill c2"})
        await session.do({"act": "touch", "line": "cut c1-broker"})
        assert (await scene_when(session, now_ms=5000))["touches"] == ["kill c2@5s1ms", "cut c1-broker@5s2ms"]
        await session.do({"act": "undo"})
        assert (await scene_when(session, now_ms=5000))["touches"] == ["kill c2@5s1ms"]
        await session.do({"act": "undo"})
        assert (await scene_when(session, now_ms=5000))["touches"] == []
        with pytest.raises(RefusedError, match="no touch to undo"):
            await session.do({"act": "undo"})


@pytest.mark.long
async def test_a_touch_waits_for_the_way_back_to_the_one_before() -> None:
    """Both are at the moment that was shown, however long the way is."""
    async with played(life="20m") as session:
        await session.do({"act": "to", "ms": 600_000})
        await scene_when(session, now_ms=600_000)
        await session.do({"act": "touch", "line": "kill c1"})
        await session.do({"act": "to", "ms": 599_000})
        await scene_when(session, now_ms=599_000)
        await session.do({"act": "touch", "line": "kill c2"})
        await session.do({"act": "touch", "line": "cut c1-broker"})
        scene = await scene_when(session)
        assert scene["touches"] == ["kill c2@9m59s1ms", "cut c1-broker@9m59s2ms"]
        assert scene["sides"][0]["now_ms"] == 599_000


@pytest.mark.long
async def test_two_lock_modes_go_side_by_side(tmp_path: Path) -> None:
    """A side that is added plays the same plan to the same moment; each touch is in both."""
    async with played() as session:
        await session.do({"act": "to", "ms": 10_000})
        await scene_when(session, now_ms=10_000)
        await session.do({"act": "touch", "line": "kill c1"})
        await session.do({"act": "sides", "modes": ["faithful", "fenced"]})
        scene = await scene_when(session, now_ms=10_000)
        assert [side["mode"] for side in scene["sides"]] == ["faithful", "fenced"]
        await session.do({"act": "event"})
        await session.do({"act": "finish"})
        over = await scene_when(session, over=True)
        assert "<svg" in await session.timeline()
        again = await asyncio.to_thread(replayed, await session.home(), tmp_path)
        assert over["sides"][0]["hash"] == again.trace_hash[:8]
        assert over["sides"][0]["hash"] != over["sides"][1]["hash"]
        with pytest.raises(RefusedError, match="The run is over"):
            await session.do({"act": "touch", "line": "kill c2"})


async def test_play_pauses_when_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes as fast as was asked, or as it can; the last page that closes pauses it."""
    monkeypatch.setattr(session_module, "_ALONE_S", 0)
    async with played() as session:
        await session.do({"act": "speed", "times": 5})
        async with aclosing(session.scenes()) as scenes:
            await session.do({"act": "play"})
            async for scene in scenes:
                if scene["sides"][0]["now_ms"] > 1000:
                    break
            assert scene["playing"]
        await until(lambda: not session.is_playing or None, "the run pauses")
        scene = await scene_when(session)
        assert 0 < scene["sides"][0]["now_ms"] < 90_000


async def test_what_a_lesson_shows_is_asked_when_all_is_judged() -> None:
    """The judge works in a copy of the process, seconds behind. Asked at once, the lesson waits for it."""
    lesson = LESSONS["zombie"]
    async with played() as session:
        await session.do(lesson.row("en")["open"])
        moments = [(lesson.watch_ms + touch.after_ms, touch.line) for touch in lesson.touches]
        for ms, line in [*moments, (moments[-1][0] + lesson.show_ms, "")]:
            await session.do({"act": "to", "ms": ms})
            await scene_when(session, now_ms=ms)
            if line:
                await session.do({"act": "touch", "line": line})
        asked = await ask_app(make_app(session), f"/lessons/{lesson.key}", headers={"host": "localhost"})
        assert json.loads(asked.text) == {"shown": True}


@pytest.mark.long
async def test_what_cannot_be_played_is_refused_and_all_stays() -> None:
    """A wrong story, act or value is a sentence; the run before it is there."""
    async with played() as session:
        await session.do({"act": "to", "ms": 1000})
        await scene_when(session, now_ms=1000)
        (pid,) = session.pids
        for act, sentence in (
            ({"act": "open", "what": "nothing"}, "no experiment is named 'nothing'"),
            ({"act": "open", "what": "quiet", "setup": {"life": "soon"}}, "soon"),
            ({"act": "open", "what": "quiet", "setup": {"members": 2}}, "a setup has no members"),
            ({"act": "open", "what": "quiet", "setup": {"events": "x"}}, "a setup has no events"),
            ({"act": "open", "what": "quiet", "setup": {"consumers": "3"}}, "is '3', not a whole number from 1 on"),
            ({"act": "open", "what": "quiet", "setup": {"rate": -1}}, "rate is -1, not a number from 0 on"),
            ({"act": "open", "what": "quiet", "setup": {"consumers": 201}}, "consumers is 201, and the page shows at"),
            ({"act": "open", "what": "quiet", "setup": {"retry_sends": 1}}, "is 1, not true or false"),
            ({"act": "open", "what": "quiet", "setup": {"work": 1.5}}, "work_ms is 1.5, not a whole number"),
            ({"act": "open", "what": "quiet", "setup": {"store": 2}}, "store 2 is not allowed"),
            ({"act": "open", "what": "quiet", "setup": {"consumer": "x"}}, "consumer is 'x'"),
            ({"act": "open", "what": "quiet", "setup": {"consumer": {"x": 1}}}, "setup has texts, numbers"),
            ({"act": "open", "what": "deploy", "setup": {"at_once": 1.5}}, "at-once is 1.5, no int"),
            ({"act": "open", "what": "n" * 10_000}, "no experiment is named"),
            ({"act": "open", "what": __file__}, "is a file. Only `lockstep-sim play"),
            ({"act": "open", "what": "shop.py:consumer"}, "is a file. Only `lockstep-sim play"),
            ({"act": "sides", "modes": ["loose"]}, "'loose' is not allowed"),
            ({"act": "touch", "line": "kill c9"}, "no host is named 'c9'"),
            ({"act": "touch", "line": "tickle c1"}, "no fault is named 'tickle'"),
            ({"act": "speed", "times": "fast"}, "times is a number"),
            ({"act": "dance"}, "There is no act 'dance'"),
        ):
            with pytest.raises(RefusedError, match=re.escape(sentence)):
                await session.do(act)
        assert session.pids == [pid]
        await scene_when(session, now_ms=1000)


@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        ({"queues": 10**9}, "queues is 1,000,000,000, and the page shows at most 1,000"),
        ({"queues": 501, "brokers": 2}, "queues is 501 at each of 2 brokers, and the page shows at most 1,000"),
        ({"rate": 1001}, "rate is 1,001, and the page shows at most 1,000"),
    ],
)
def test_a_run_that_is_too_large_for_the_page_is_refused(setup: dict[str, int], sentence: str) -> None:
    """With the field, its value and the most."""
    with pytest.raises(ValueError, match=sentence):
        drawn(Choice(setup=setup))


async def test_a_process_that_dies_is_told_and_started_anew() -> None:
    """The page says how it ended; restart begins the plan again in a new process."""
    async with played() as session:
        await session.do({"act": "to", "ms": 5000})
        await scene_when(session, now_ms=5000)
        await session.do({"act": "touch", "line": "kill c1"})
        (pid,) = session.pids
        os.kill(pid, signal.SIGKILL)
        await scene_when(session, error="The process of this run ended by signal 9. Start the run again.")
        with pytest.raises(RefusedError, match="by signal 9"):
            await session.do({"act": "touch", "line": "kill c2"})
        await session.do({"act": "to", "ms": 6000})
        scene = await scene_when(session, now_ms=6000, error="")
        assert scene["touches"] == ["kill c1@5s1ms"]
        assert session.pids != [pid]


async def test_a_process_that_does_not_answer_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a listener that never returns: the page says so, and hears the next act."""
    async with played() as session:
        await scene_when(session, now_ms=0)
        (pid,) = session.pids
        os.kill(pid, signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(side_module, "_SILENT_S", 0.05)
            await session.do({"act": "finish"})
            scene = await scene_when(session)
        assert scene["sides"][0]["error"].startswith("The process of this run did not answer for 0.05 s")
        await session.do({"act": "restart"})
        await scene_when(session, now_ms=0, error="")


async def test_a_process_whose_answer_is_too_large_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the rest of it."""
    monkeypatch.setattr(side_module, "_END_S", 0.05)
    monkeypatch.setattr(side_module, "_LINE_BYTES_MAX", 1000)
    async with played() as session:
        scene = await scene_when(session)
        assert scene["sides"][0]["error"].startswith("The process of this run ended")


async def test_a_process_that_does_not_answer_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not stop what it plays."""
    for module in (session_module, side_module):
        monkeypatch.setattr(module, "_END_S", 0.05)
    monkeypatch.setattr(side_module, "_SILENT_S", 3600)
    async with played(life="100h") as session:
        await scene_when(session, now_ms=0)
        (pid,) = session.pids
        os.kill(pid, signal.SIGSTOP)
        await session.do({"act": "finish"})


async def test_an_act_is_heard_while_a_run_is_played_anew() -> None:
    """A long way is stopped where it is."""
    async with played(life="100h") as session:
        await session.do({"act": "finish"})
        async with aclosing(session.scenes()) as scenes:
            async for scene in scenes:
                if scene["sides"][0]["now_ms"]:
                    break
        await session.do({"act": "pause"})
        scene = await scene_when(session)
        assert not scene["sides"][0]["over"]


def test_the_command_serves_the_page_and_ends_with_ctrl_c() -> None:
    """`lockstep-sim play` says where its page is; Ctrl-C ends it and its processes with 130."""
    command = [
        str(SCRIPTS / "lockstep-sim"),
        "play",
        "takeover",
        "--kill",
        "c1@30s",
        "--no-open",
        "--lock-mode",
        "both",
    ]
    with Running(command, dict(os.environ)) as running:
        address = running.error_line().split()[4]
        host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
        page, scenes = (http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S) for _ in range(2))
        page.request("GET", "/")
        token = re.search(r'"token": ?"(\w+)"', page.getresponse().read().decode())
        assert token is not None
        headers = {"X-Token": token[1], "Origin": address.rstrip("/")}
        page.request("POST", "/do", json.dumps({"act": "finish"}), headers)
        assert page.getresponse().read() == b"{}"
        scenes.request("GET", "/scenes")
        stream = scenes.getresponse()
        for line in iter(stream.readline, b""):
            if line.startswith(b"data:"):
                scene = json.loads(line[5:])
                if all(side.get("over") for side in scene["sides"]):
                    break
        assert scene["plan"] == ["kill c1@30s"]
        page.close()
        scenes.close()
        stream.close()
        ended = running.stop(signal.SIGINT)
    assert (ended.status, ended.err) == (130, "")


def test_a_wrong_call_is_one_line(tmp_path: Path) -> None:
    """What cannot be played is said before a page is there."""
    (tmp_path / "shop.py").write_text(
        "from lockstep.simulation import experiment\n"
        "@experiment(brokers=3, queues=334)\n"
        "async def crowd(cluster):\n"
        "    await cluster.start()\n",
        encoding="utf-8",
    )
    for words, text in (
        (["nothing"], "no experiment is named 'nothing'"),
        (["worlds", "--rate", "3"], "worlds draws everything from its seed"),
        (["1/9.9"], "no article has a section '1/9.9'"),
        (["takeover", "--lock-mode", "loose"], "'loose' is not allowed"),
        (["takeover", "--lock-mode", "both", "--strategy", "STICKY"], "'faithful' has no strategy STICKY; use fenced"),
        (
            ["--consumers", "1000000000", "--kill", "c1@1s"],
            "consumers is 1,000,000,000, and the page shows",
        ),
        (["--brokers", "11"], "brokers is 11, and the page shows at most 10"),
        (
            [f"{tmp_path / 'shop.py'}:crowd"],
            "queues is 334 at each of 3 brokers, and the page shows at most 1,000",
        ),
    ):
        with Running([str(SCRIPTS / "lockstep-sim"), "play", "--no-open", *words], dict(os.environ)) as running:
            ended = running.ended()
        assert ended.status == 2
        assert ended.err.startswith("lockstep-sim: ")
        assert text in ended.err
