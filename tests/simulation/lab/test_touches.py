"""Faults that last until something ends them, and what a person does to a run: start, go on, mend, send, listeners."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyStatus, MessageExt, PushConsumer
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.words import end_words, event_words, fault_words
from lockstep.simulation.lab.report import run_lines
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.lab.setup import FaultEvent
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.search.explain import explain
from tests.simulation.lab.test_overlapping_faults import AMOUNTS, IN_FORCE

LINK_OR_HOST = {name: fault.example.partition("@")[0] for name, fault in FAULTS.items()}
PROCESS = ("kill", "power-off", "leave", "restart-broker")


def play(*events: str, app: Any = None, life: str = "1m", **setup: Any) -> Run:
    """A story of one consumer with these faults."""

    @experiment(events=events, **{"consumers": 1, "queues": 1, "rate": 1, "store": "sync", "life": life, **setup})
    async def story(cluster: StoryCluster) -> None:
        await cluster.start(app)

    run = story.run()
    assert run.error is None
    return run


def bands(run: Run) -> list[tuple[str, int, int | None]]:
    assert run.played is not None
    return [(band.fault, band.at_ms, band.end_ms) for band in run.played.findings.bands]


def rounded(run: Run) -> list[tuple[str, int, int | None]]:
    """In seconds: a start takes some milliseconds."""
    return [(fault, at // 1000, None if end is None else end // 1000) for fault, at, end in bands(run)]


def told(run: Run) -> list[str]:
    """The faults without an effect, as a run tells of them."""
    return [line.partition("FAULT  ")[2] for line in run_lines(run) if "has no effect" in line]


@pytest.mark.parametrize("name", [name for name in IN_FORCE if name not in PROCESS])
def test_what_lasts_is_ended_by_hand(name: str) -> None:
    """By `go-on` of its host or `mend` of its link, in either direction, before its time; later nothing happens."""
    where, amount = LINK_OR_HOST[name], AMOUNTS.get(name, ("",))[0]
    one, _, other = where.partition("-")
    lasts = "" if FAULTS[name].lasts.name == "UNTIL_ENDED" else "+40s"
    seen: list[Any] = []

    @experiment(consumers=1, queues=1, rate=0, life="1m", store="sync")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        cluster.fault(f"{name} {where}{lasts}{amount and f'={amount}'}")
        await cluster.run_for("10s")
        seen.append(bool(IN_FORCE[name](cluster)))
        await cluster.fault(f"mend {other}-{one}" if other else f"go-on {one}")
        await cluster.run_for("1s")
        seen.append(bool(IN_FORCE[name](cluster)))
        await cluster.run_for("40s")
        seen.append(bool(IN_FORCE[name](cluster)))

    run = story.run()
    assert run.error is None
    assert seen == [True, False, False]
    (_, began_ms, end_ms), (_, ended_ms, _) = bands(run)
    assert (end_ms, ended_ms - began_ms) == (ended_ms, 10_000)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.lasts.name == "UNTIL_ENDED"])
def test_what_has_no_duration_lasts_until_all_is_healed(name: str) -> None:
    """Its band ends then, and everything is handled."""
    amount = AMOUNTS.get(name, ("",))[0]
    run = play(f"{name} {LINK_OR_HOST[name]}@10s{amount and f'={amount}'}")
    assert run.played is not None
    assert run.played.findings.wrong == []
    assert bands(run) == [(name, 10_000, 60_000)]


def test_a_process_that_is_down_is_started() -> None:
    """Also before the fault that keeps it down would start it; its end starts nothing more."""
    run = play("kill c1@10s", "start c1@20s", "leave c1@30s+20s", "start c1@35s", life="2m")
    assert rounded(run) == [("kill", 10, 20), ("start", 20, None), ("leave", 30, 35), ("start", 35, None)]
    assert run.played is not None
    words = [fault_words(band) for band in run.played.findings.bands]
    assert words[:2] == ["c1's process was killed, and started again after 10.0 s", "c1 was started"]


def test_a_restart_ends_a_stop_without_an_end() -> None:
    """The new process was never stopped."""
    run = play("stall c1@10s", "kill c1@20s", "start c1@30s")
    assert rounded(run) == [("stall", 10, 20), ("kill", 20, 30), ("start", 30, None)]


def test_an_earlier_end_is_none_of_a_later_stop() -> None:
    """The first would have gone on at 50 s by itself."""
    run = play("stall c1@10s+40s", "go-on c1@20s", "stall c1@30s", "sleep c1@35s", "go-on c1@55s")
    ends = {fault: end for fault, at_ms, end in bands(run) if at_ms >= 30_000}
    assert ends == {"stall": 55_000, "sleep": 55_000, "go-on": None}


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (["stall c1@10s", "stall c1@20s"], "stall c1 has no effect: stall c1 lasts already."),
        (["sleep c1@10s", "sleep c1@20s+5s"], "sleep c1 has no effect: sleep c1 lasts already."),
        (["go-on c1@10s"], "go-on c1 has no effect: nothing lasts on c1."),
        (["stall c1@5s+2s", "go-on c1@10s"], "go-on c1 has no effect: nothing lasts on c1."),
        (["kill c1@5s", "go-on c1@10s"], "go-on c1 has no effect: nothing lasts on c1."),
        (["mend c1-broker@10s"], "mend c1 - broker has no effect: nothing lasts between c1 and broker."),
        (["start c1@10s"], "start c1 has no effect: c1 is not down."),
        (["kill c1@5s", "stall c1@10s"], "stall c1 has no effect: c1 does not run."),
        (["send c1@10s=key1"], "send c1 has no effect: c1 has no messages to send."),
        (["fail-listener producer@10s"], "fail-listener producer has no effect: producer has no listener."),
    ],
)  # fmt: skip
def test_a_fault_without_effect_is_told(events: list[str], why: str) -> None:
    """In a sentence; it is no error of the run, and no band."""
    run = play(*events)
    assert told(run) == [why]
    assert len(bands(run)) == len(events) - 1


def test_a_message_more_has_the_next_number() -> None:
    """And the key that was asked for; those that come at the rate are numbered on, in their time."""
    calls: list[tuple[str, str | None]] = []

    async def listen(messages: Sequence[MessageExt], _: Any) -> None:
        calls.extend((one.body.decode(), one.sharding_key) for one in messages)

    run = play("send producer@5500ms=key3", app=listen, life="10s", keys=16)
    assert run.played is not None
    assert [text for text, _ in calls] == [str(number) for number in range(11)]
    assert [key for text, key in calls if text in ("5", "6", "7")] == ["key5", "key3", "key7"]


def test_the_calls_of_a_listener_are_slower_and_fail() -> None:
    """Each by so much; the product tries again by itself, and nothing is lost."""
    begun: list[int] = []

    @experiment(consumers=1, queues=1, rate=1, keys=1, work="0s", life="1m")
    async def story(cluster: StoryCluster) -> None:
        async def listen(messages: Sequence[MessageExt], _: Any) -> None:
            begun.append(cluster.world.elapsed_ms)

        await cluster.start(listen)
        cluster.fault("fail-listener c1+10s")
        await cluster.run_for("10s")
        assert begun == []
        await cluster.fault("slow-listener c1+20s=1500ms")

    run = story.run()
    assert run.error is None
    assert run.played is not None
    assert run.played.findings.wrong == []
    slow = [ms for ms in begun if 13_000 < ms < 29_000]
    assert len(slow) > 9
    assert [later - ms for ms, later in pairwise(slow)] == [1500] * (len(slow) - 1)
    assert run.played.cluster.judge().duplicates, "attempts that failed"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_consumer_of_the_users_is_touched_too(is_async: bool) -> None:
    """Its listener, async or plain, and the status that fits its order."""
    calls: list[str] = []

    async def listen(messages: Sequence[MessageExt], _: Any) -> ConsumeOrderlyStatus:
        await asyncio.sleep(0)
        return plain(messages, _)

    def plain(messages: Sequence[MessageExt], _: Any) -> ConsumeOrderlyStatus:
        calls.extend(one.body.decode() for one in messages)
        return ConsumeOrderlyStatus.SUCCESS

    def service(**client: Any) -> PushConsumer:
        made = PushConsumer("billing", listener=listen if is_async else plain, **client)
        made.subscribe("orders")
        return made

    run = play("fail-listener c1@5s+10s", "slow-listener c1@20s+10s=2s", app=service)
    assert run.played is not None
    assert run.played.findings.wrong == []
    assert calls == [str(number) for number in range(60)]
    assert len(bands(run)) == 2


def test_words_of_what_has_no_duration() -> None:
    """As it was planned, as it was played, and its end."""
    run = play("stall c1@10s", "go-on c1@20s")
    assert run.played is not None
    stall, go_on = run.played.findings.bands
    assert event_words(FaultEvent(10_000, "stall", "c1")) == "stall c1 until it is ended"
    assert fault_words(stall) == "c1 was stopped for 10.0 s (SIGSTOP)"
    assert end_words(stall, [stall, go_on]) == "c1 went on"


@pytest.mark.long
def test_an_explanation_shortens_what_has_no_duration() -> None:
    """A member that is stopped until the end inside its call: how long the stop had to last is found all the same."""

    @experiment(consumers=2, queues=1, rate=3, keys=1, work="1s", life="3m", events=["stall c1@20s", "stall c2@21s"])
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()

    plan = story.draw(1, story.setup.lock_mode)
    run = story.run()
    assert run.played is not None
    kinds = [found.kind for found in run.played.findings.wrong]
    assert kinds
    found = explain(story, plan, str(kinds[0]))
    assert found.last is not None
    assert found.last.duration_ms == 0
    assert found.shortest_ms is not None
    assert found.too_short_ms < found.shortest_ms < 160_000
