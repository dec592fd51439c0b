"""What a scene shows of stories, exhibits, articles and FIFO groups, and that taking it changes no run."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.client import MessageQueue, SerializeType
from lockstep.simulation.articles.registry import find_section
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.faults.text import read_fault
from lockstep.simulation.lab.recorded_cluster import INSTANT, RecordedCluster
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.lab.setup import Setup, Store
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.play.scene import Json, Scenes
from lockstep.simulation.run import simulate
from lockstep.simulation.stories.takeover import takeover
from lockstep.simulation.world import World
from lockstep.simulation.worlds.fifo.fifo_world import FIFO_WORLDS
from tests.simulation.play.played import scenes_of
from tests.simulation.simulated import simulated

LEASE_MS = 60_000


def story(world: World, *faults: str, **setup: Any) -> tuple[StoryCluster, Scenes]:
    cluster = StoryCluster(
        world, Setup(**{"consumers": 2, "queues": 2, **setup}), [*map(read_fault, faults)], None, None
    )
    return cluster, Scenes(cluster)


def by(scene: Json, kind: str, name: str) -> Json:
    [found] = [one for one in scene[kind] if name in (one.get("id"), one.get("name"))]
    return found  # type: ignore[no-any-return]


@simulated()
async def test_takeover(world: World) -> None:
    """The killed owner's lock stays its own until its time is over; then the other goes on at the stored offset."""
    cluster, scenes = story(world, "kill c1@30s")
    before = scenes.take()
    assert [(one["name"], one["role"], one["state"]) for one in before["hosts"]] == [
        ("broker", "broker", "down"), ("producer", "producer", "down"), ("c1", "member", "down"),
        ("c2", "member", "down"),
    ]  # fmt: skip
    await cluster.start()
    await cluster.at("29s")
    scene = scenes.take()
    [queue] = [one["id"] for one in by(scene, "members", "c1")["queues"]]
    held = by(scene, "queues", queue)
    lock = held["lock"]
    assert lock == {"owner": "c1", "renewed_ms": lock["ends_ms"] - LEASE_MS, "ends_ms": lock["ends_ms"],
                    "epoch": "", "draining": False}  # fmt: skip
    assert 29_000 <= lock["ends_ms"] < 29_000 + LEASE_MS
    stored = {message.queue_offset: message.sharding_key for message in cluster.stored(held["number"])}
    shown = [scene["key_names"][key] for key in held["keys"]]
    assert shown == [stored[held["first"] + place] for place in range(len(shown))]
    assert held["first"] + len(shown) == held["max"] == len(stored)
    assert held["first"] == held["committed"] - 4
    await cluster.at("80s")
    scene = scenes.take()
    dead, waits = by(scene, "hosts", "c1"), by(scene, "queues", queue)
    assert dead["state"] == "down"
    assert [one["name"] for one in scene["members"]] == ["c2"]
    assert waits["lock"]["owner"] == "c1"
    assert 0 <= waits["committed"] - held["committed"] < waits["max"] - held["max"]
    await cluster.at("100s")
    scene = scenes.take()
    taken = by(scene, "queues", queue)
    assert taken["lock"]["owner"] == "c2"
    assert taken["committed"] > waits["max"]
    await cluster.finish()
    await cluster.shut_down()


@pytest.mark.parametrize("fault", ["kill broker@30s+10s", "restart-broker broker@30s+10s", "power-off broker@30s+10s"])
@pytest.mark.parametrize("store", [Store.MEMORY, Store.ASYNC])
def test_broker_is_down(fault: str, store: Store) -> None:
    """What it had stands, also for who did not look before."""

    @simulated()
    async def run(world: World) -> None:
        cluster, scenes = story(world, fault, store=store)
        await cluster.start()
        await cluster.at("35s")
        scene = scenes.take()
        assert by(scene, "hosts", "broker")["state"] == "down"
        assert [one["stands"] for one in scene["queues"]] == [True, True]
        assert {one["lock"]["owner"] for one in scene["queues"]} == {"c1", "c2"}
        assert all(one["max"] > one["committed"] > 0 and min(one["keys"]) >= 0 for one in scene["queues"])
        await cluster.at("50s")
        again = scenes.take()
        assert [one["stands"] for one in again["queues"]] == [False, False]
        grew = [one["max"] > other["max"] for one, other in zip(again["queues"], scene["queues"], strict=True)]
        assert all(grew) is (store is not Store.MEMORY)
        assert all(min(one["keys"]) >= 0 for one in again["queues"])
        await cluster.finish()
        await cluster.shut_down()

    run()


@simulated()
async def test_what_lasts(world: World) -> None:
    cluster, scenes = story(
        world, "slow-disk broker@10s+20s=200ms", "partition c1-broker@10s+5s", "hold broker-c2@10s+5s",
        "slow c1-broker@16s+5s=250ms", "stall c2@16s+5s", "sleep c1@22s+5s",
    )  # fmt: skip
    await cluster.start()
    await cluster.at("12s")
    scene = scenes.take()
    assert [one["fault"] for one in by(scene, "hosts", "broker")["lasting"]] == ["slow-disk"]
    assert "200ms" in by(scene, "hosts", "broker")["lasting"][0]["text"]
    links = {(one["a"], one["b"]): [lasting["fault"] for lasting in one["lasting"]] for one in scene["links"]}
    assert links == {("broker", "c1"): ["partition"], ("broker", "c2"): ["hold"]}
    await cluster.at("18s")
    scene = scenes.take()
    assert [(one["a"], one["b"], one["lasting"][0]["fault"]) for one in scene["links"]] == [("c1", "broker", "slow")]
    assert by(scene, "hosts", "c2")["state"] == "stopped"
    await cluster.at("25s")
    assert by(scenes.take(), "hosts", "c1")["state"] == "asleep"
    await cluster.at("31s")
    scene = scenes.take()
    assert not scene["links"]
    assert {(one["state"], not one["lasting"]) for one in scene["hosts"]} == {("up", True)}
    await cluster.finish()
    await cluster.shut_down()


def test_calls_by_key_and_epochs() -> None:
    """Each queue's listener has one message of each of several keys."""
    plan = replace(takeover.with_setup({"consumer": {"ordering": "key"}, "work_ms": 2000}).draw(1, LockMode.FENCED))
    scenes, _ = scenes_of(takeover, replace(plan, life_ms=20_000))
    queues = [queue for scene in scenes for member in scene["members"] for queue in member["queues"]]
    assert max(len(queue["running"]) for queue in queues) > 1
    assert all(queue["cached"] >= len(queue["running"]) for queue in queues)
    assert all(queue["first"] <= min(queue["running"]) for queue in queues if queue["running"])
    assert {queue["lock"]["epoch"].rpartition("-")[0] for queue in scenes[-1]["queues"]} == {"1700000000000"}


def test_article() -> None:
    """The 1,000 ms after a listener's failure are seen: its queue waits."""
    section = find_section("1/2.2.7")
    assert section.story is not None
    tell, seen = section.story, list[tuple[bool, bool]]()

    async def main(world: World) -> None:
        cluster = RecordedCluster(world, SerializeType.JSON, profile="articles")
        scenes = Scenes(cluster)

        def look() -> None:
            [member] = scenes.take()["members"]
            [queue] = [one for one in member["queues"] if one["id"] == "broker/0"]
            seen.append((bool(queue["running"]), queue["suspended"]))

        cluster.seen.on_begin = lambda _calls: look()
        cluster.seen.on_end = lambda _calls, _answer: world.loop.call_later(0.5, look)
        await tell(cluster)
        await cluster.shut_down()

    simulate(main, seed=1, options=INSTANT)
    assert set(seen) == {(True, False), (False, True)}


@simulated()
async def test_keys_of_the_newest_messages_are_kept(world: World) -> None:
    """Of older ones a long run would keep more and more."""
    cluster, scenes = story(world, queues=1, rate=0, keys=4)
    await cluster.start()
    scenes.take()
    core = cluster.core()
    for offset in range(6000):
        for note in core.messages.when_stored:
            note(cluster.topic, 0, offset, {"__SHARDINGKEY": f"key{offset % 4}"})
    queue, keys = MessageQueue(cluster.topic, "broker", 0), scenes._keys
    assert keys.of(queue, 998, 1002) == [-1, -1, 0, 1]
    assert keys.of(queue, 5998, 6001) == [2, 3, -1]
    assert len(keys._stored[queue]) == 5000
    await cluster.shut_down()


def test_fifo_and_the_same_run() -> None:
    """Deliveries have an owner and an end. A run with scenes has the hash of one without."""
    plan = FIFO_WORLDS.draw(1, LockMode.FENCED)
    scenes, run = scenes_of(FIFO_WORLDS, plan)
    deliveries = [(scene["now_ms"], one) for scene in scenes for one in scene["deliveries"]]
    assert {one["owner"] for _, one in deliveries} == set(plan.hosts)
    assert all(one["since_ms"] <= now_ms < one["ends_ms"] for now_ms, one in deliveries)
    assert run.trace_hash == run_plan(FIFO_WORLDS, plan).trace_hash
