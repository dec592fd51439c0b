"""Faults as people write them: every name is read, written back, played; mistakes are one clear line."""

import random

import pytest

from lockstep.client import SendError
from lockstep.simulation.lab.durations import duration_ms, duration_text
from lockstep.simulation.lab.faults.swarm import draw_faults
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.text import FaultError, fault_text, read_fault
from lockstep.simulation.lab.setup import FaultEvent, Setup
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_read_and_written_back(name: str) -> None:
    """The example of each row is legal, and its text says all that was read."""
    text = f"{name} {FAULTS[name].example}"
    event = read_fault(text)
    assert event.fault == name
    assert read_fault(fault_text(event)) == event


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("burn c1@30s", "no fault is named 'burn'; `lockstep-sim list` lists all"),
        ("stal c1@30s", "no fault is named 'stal'; did you mean stall"),
        ("kill c1", "'' is no duration"),
        ("kill @30s", "it is a fault of a host"),
        ("kill c1-c2@30s", "it is a fault of a host"),
        ("cut c1@30s", "it is a fault of a link of two hosts, as c1-broker"),
        ("partition c1-c1@30s+5s", "it is a fault of a link of two hosts, as c1-broker"),
        ("nat c1-broker@30s+60s=0s", "'0s' is no amount: it is more than 0"),
        ("drift c1@30s=2%", "it needs a duration (an example: drift c1@30s+60s=-2%)"),
        ("send producer@30s=3", "'3' is no key of the story; write it as key0, key1, ..."),
        ("cut c1-broker@30s+5s", "it has no duration"),
        ("stall c1@30s+0s", "a duration is more than 0"),
        ("slow c1-broker@30s+5s", "it needs =AMOUNT"),
        ("kill c1@30s=5", "it has no =AMOUNT"),
        ("drift c1@30s+5s=2", "'2' is no amount; write it as 500ppm, 2% or -2%"),
        ("drift c1@30s+5s=90%", "'90%' is too much: a clock drifts by at most 50%"),
        ("slow-link c1-broker@30s+5s=0B/s", "'0B/s' is no amount; write it as 500B/s, 20kB/s or 1MB/s"),
        ("stale-routes c1-broker@30s+5s=1s", "it is a fault of a host with a name server"),
        ("kill c1@soon", "'soon' is no duration; write it as 500ms, 30s, 1m30s or 2h"),
    ],
)
def test_a_mistake_is_one_clear_line(text: str, why: str) -> None:
    """What is wrong, and what is allowed."""
    with pytest.raises(FaultError) as raised:
        read_fault(text)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_fault_may_have_a_usual_target() -> None:
    """There is one broker in most setups, so only the time is written."""
    assert read_fault("restart-broker 1m30s+5s") == FaultEvent(90_000, "restart-broker", "broker", 5000)


def test_durations_are_read_back() -> None:
    """Of every size."""
    for ms in (0, 1, 999, 1000, 61_000, 90_500, 3_600_000):
        assert duration_ms(duration_text(ms)) == ms
    with pytest.raises(ValueError, match="no whole number of milliseconds"):
        duration_ms("1us")


def test_a_swarm_has_a_part_of_the_kinds() -> None:
    """Over many seeds all kinds, in one seed some of them; equal seeds draw equal faults."""
    drawn = [draw_faults(random.Random(seed), Setup(), list(FAULTS), 4) for seed in range(200)]
    assert {event.fault for events in drawn for event in events} == set(FAULTS)
    assert drawn == [draw_faults(random.Random(seed), Setup(), list(FAULTS), 4) for seed in range(200)]
    assert all(read_fault(fault_text(event)) == event for events in drawn for event in events)


_BEFORE = {"start": "kill c1@20s", "go-on": "stall c1@20s", "mend": "hold broker-c1@20s"}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_played_and_healed(name: str) -> None:
    """It happens at its time, its band ends, and everything is handled afterwards."""
    text = f"{name} {FAULTS[name].example}"
    at_ms, before = read_fault(text).at_ms, _BEFORE.get(name)

    @experiment(consumers=2, queues=2, rate=1, life="2m", store="sync", events=[*filter(None, [before]), text])
    async def story(cluster: StoryCluster) -> None:
        await cluster.finish()
        assert cluster.not_committed() == {}
        assert len(cluster.sent) > 100 - 40

    run = story.run(lock_mode="fenced")
    assert run.error is None
    assert run.played is not None
    assert run.played.findings.wrong == []
    *others, band = run.played.findings.bands
    assert (band.at_ms, band.fault) == (at_ms, name)
    assert [(one.end_ms or 0) // 1000 for one in others] == [at_ms // 1000] * (before is not None)
    assert (band.end_ms or band.at_ms) - band.at_ms >= read_fault(text).duration_ms


def test_a_fault_of_hosts_that_have_it_already_is_played() -> None:
    """Each lasts as long as it says."""
    events = [
        "partition c1-broker@5s+10s",
        "partition broker-c1@8s+2s",
        "cut c1-broker@9s",
        "partition c1-broker@20s+1s",
    ]

    @experiment(consumers=1, queues=1, rate=1, life="30s", events=events)
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()

    run = story.run()
    assert run.played is not None
    bands = [(band.fault, band.at_ms, band.end_ms) for band in run.played.findings.bands]
    assert bands == [
        ("partition", 5000, 15_000),
        ("partition", 8000, 10_000),
        ("cut", 9000, None),
        ("partition", 20_000, 21_000),
    ]


@pytest.mark.parametrize(("fault", "arrives"), [("close", True), ("cut", False)])
def test_what_is_under_way_passes_a_close(fault: str, arrives: bool) -> None:
    """Bytes take two seconds, and the connection ends after one. The caller gets no answer."""
    stored = list[int]()

    @experiment(consumers=0, queues=1, rate=0, life="1m")
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        await cluster.send()
        cluster.fault("late producer-broker+20s=2s")
        sending = cluster.world.start(cluster.send(), name="send")
        await cluster.run_for("1s")
        cluster.fault(f"{fault} producer-broker")
        await cluster.run_for("1500ms")
        stored.append(cluster.store().max_offset(cluster.topic, 0))
        with pytest.raises(SendError):
            await sending

    assert story.run().error is None
    assert stored == [2 if arrives else 1]
