"""What a run tells: few sentences, about what happens, in order; single messages apart from them."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.client import SerializeType
from lockstep.simulation.articles.registry import find_section
from lockstep.simulation.lab.experiment import LockMode, PlayedWorld
from lockstep.simulation.lab.faults.text import read_fault
from lockstep.simulation.lab.recorded_cluster import INSTANT, RecordedCluster
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.play.engine import Engine
from lockstep.simulation.play.scene import Json, Scenes
from lockstep.simulation.play.telling import Telling
from lockstep.simulation.run import simulate
from lockstep.simulation.stories.takeover import takeover
from lockstep.simulation.world import World

STEP_MS = 200


def told(experiment: Any, plan: Any, *, until_ms: int = 1 << 60) -> tuple[list[Json], list[Json], str]:
    """The sentences and marks of a run as it is played, and its hash."""
    observers: list[Any] = []

    def built(played: PlayedWorld) -> None:
        observers.extend([Scenes(played.cluster), Telling(played.cluster)])

    story, marks = list[Json](), list[Json]()
    with Engine(experiment, plan, on_built=built) as engine:
        while engine.result is None and engine.now_ms < until_ms:
            engine.advance_to(engine.now_ms + STEP_MS)
            new = observers[1].read(observers[0].take())
            for part in (new.story, new.calls):
                assert [one["at_ms"] for one in part] == sorted(one["at_ms"] for one in part)
            story += [*new.story, *new.calls]
            marks += new.marks
        return story, marks, engine.hash


def without_calls(story: list[Json]) -> list[str]:
    return [one["text"] for one in story if one["focus"] != "calls"]


def test_takeover() -> None:
    plan = takeover.with_setup({}, [read_fault("kill c1@30s"), read_fault("slow-disk broker@10s+5s=200ms")])
    story, marks, trace_hash = told(plan, plan.draw(1, LockMode.FAITHFUL))
    texts = without_calls(story)
    expected = [
        "The broker starts.",
        "c1 locks queues 0 and 1.",
        "c2 joins the group; the broker tells the other members.",
        "c1 gives back queue 1.",
        "slow-disk broker is over.",
        "c1 is killed.",
        "c2 asks for queue 0, and is refused: c1 holds the lock.",
        "c2 renews its lock of queue 1.",
        "The lock of c1 has run out: c2 takes over queue 0, 69.0 s after the last renewal.",
        "c2 has shut down.",
    ]
    places = [texts.index(text) for text in expected]
    assert places == sorted(places)
    kinds = [(mark["kind"], mark["text"]) for mark in marks]
    for mark in [("life", "c1 is killed."), ("fault", "slow-disk broker is over."), ("owner", expected[8])]:
        assert mark in kinds
    calls = [one for one in story if one["focus"] == "calls"]
    assert any("has handled offset 0 (key0) of queue 1" in one["text"] for one in calls)
    assert all(one["queue"] for one in calls)
    assert {one["key"] for one in calls if " handled " in one["text"]} == set(range(16))
    run = run_plan(plan, plan.draw(1, LockMode.FAITHFUL))
    assert trace_hash == run.trace_hash


@pytest.mark.long
def test_many_members_say_little() -> None:
    """What happens to many is told in a sentence, and the numbers of queues in a row as a range."""
    setup = {"consumers": 12, "queues": 32, "rate": 20.0, "life_ms": 60_000}
    plan = replace(takeover.with_setup(setup).draw(1, LockMode.FENCED), events=())
    story, _, _ = told(takeover, plan, until_ms=45_000)
    late = [one for one in story if one["focus"] != "calls" and one["at_ms"] > 25_000]
    assert any("renew their locks." in one["text"] for one in late)
    assert len(late) <= 20
    assert any("queues 0 to 31" in one["text"] for one in story)
    assert max(len(one["text"]) for one in story) < 200


def test_exhibit_and_article() -> None:
    """An exhibit of members that pop tells its faults; an article's story says what its hosts do, once."""
    exhibit = EXHIBITS["lost-pop"]
    assert exhibit.found is not None
    story, marks, _ = told(exhibit, exhibit.found.plan)
    assert [mark["text"].partition(".")[0] for mark in marks if mark["kind"] == "fault"] == [
        "partition broker - c2", "partition broker - c2 is over",
    ]  # fmt: skip
    assert any("is given offset" in one["text"] for one in story)
    section, sentences = find_section("1/2.2.2"), list[str]()
    assert section.story is not None
    play = section.story

    async def main(world: World) -> None:
        cluster = RecordedCluster(world, SerializeType.JSON, profile="articles")
        scenes, telling = Scenes(cluster), Telling(cluster)
        await play(cluster)
        sentences.extend(without_calls(telling.read(scenes.take()).story))
        await cluster.shut_down()

    simulate(main, seed=1, options=INSTANT)
    assert sentences.count("A is killed.") == 1
    assert "A locks queue 0." in sentences
    assert "B asks for queue 0, and is refused: A holds the lock." in sentences
