"""Explanations: the faults that are needed, how long, until when healing helps, and sentences that evidence bears."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.simulation.lab.experiment import FaultEvent, LockMode
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.search.explain import explain
from lockstep.simulation.search.facts import facts_of
from lockstep.simulation.search.fault_words import fault_words
from lockstep.simulation.search.healed import Healed
from lockstep.simulation.search.story import story_of
from lockstep.simulation.search.violation import violation_of
from lockstep.simulation.search.words import words_of
from lockstep.simulation.worlds.experiment import WORLDS
from lockstep.simulation.worlds.plan import Fault, Plan, Store, draw_plan
from tests.simulation.search.toy import SILENT, Toy, ToyPlan

NOISE = tuple(FaultEvent(at_ms, "noise", "c2", 500) for at_ms in (3_000, 9_000, 50_000))


def test_one_fault_is_enough() -> None:
    """The stop alone is needed, it had to last a minute, and until a minute had passed healing helped."""
    events = (*NOISE[:2], FaultEvent(20_000, "stall", "c1", 90_000), NOISE[2])
    found = explain(Toy(), ToyPlan(events=events), SILENT)
    assert found.needed == (events[2],)
    assert found.last == events[2]
    assert found.finding.at_ms == 80_200, "a minute after the last sign, when it is looked for"
    assert found.shortest_ms is not None
    assert (found.too_short_ms, found.shortest_ms // 1000) == (found.shortest_ms - 1, 60)
    assert found.inevitable_ms is not None
    assert (found.prevented_ms, found.inevitable_ms // 1000) == (found.inevitable_ms - 1, 80)
    assert "Until it happened" in "\n".join(words_of(found))
    assert (found.with_last, found.without_last) == (found.tried_luck, 0)


def test_of_two_that_do_the_same_the_earlier_one_is_named() -> None:
    """Each stop is enough alone. The violation that is explained is that of the first one."""
    stops = (FaultEvent(5_000, "stall", "c1", 62_000), FaultEvent(80_000, "stall", "c1", 62_000))
    found = explain(Toy(), ToyPlan(events=stops), SILENT)
    assert found.needed == stops[:1]


def test_a_violation_that_needs_no_fault_says_so() -> None:
    """c1 does not live at all: it is not the noise."""
    found = explain(Toy(), ToyPlan(events=NOISE, lives=False), SILENT)
    assert (found.needed, found.last, found.inevitable_ms) == ((), None, None)
    assert "It needs no fault" in words_of(found)[1]


def test_until_it_is_healed_a_run_is_the_same() -> None:
    """Its trace has the same lines; from then on everything works."""
    plan, at_ms = draw_plan(5, LockMode.FAITHFUL), 30_000
    whole = run_plan(WORLDS, plan, lines_kept=1_000_000)
    worlds: Any = Healed(WORLDS, at_ms)
    healed = run_plan(worlds, plan, lines_kept=1_000_000)
    assert whole.played is not None
    assert healed.played is not None
    lines = [run.played.findings.world.trace.lines for run in (whole, healed) if run.played is not None]
    same = [line for line in lines[0] if float(line[1:].split()[0]) < at_ms / 1000]
    assert len(same) > 100
    assert lines[1][: len(same)] == same
    assert "heal" in lines[1][len(same)]


def stop_inside_a_call() -> Plan:
    """One queue. c1 is stopped inside a call of 2 s for longer than its lock of 6 s lasts; c2 waits for the queue."""
    plan = replace(
        draw_plan(1, LockMode.FAITHFUL),
        lease_ms=6_000,
        life_ms=40_000,
        queues=1,
        first_members=1,
        store=Store.MEMORY,
        by_key=False,
        plain=(False,) * 3,
        work_ms=2_000,
        long_works=0,
        batch_size=1,
        greedy=(True,) * 3,
        same_ids=False,
        cancel=False,
        failures=False,
        poison=False,
        latency_us_max=2_000,
        sync_ms=0,
        sends=((500, 12),),
    )
    join, stop = FaultEvent(3_000, Fault.JOIN, "c2"), FaultEvent(5_000, Fault.STALL, "c1", 12_000)
    return replace(plan, events=(join, stop, FaultEvent(30_000, Fault.CUT, "c2")))


@pytest.mark.timeout(120)
def test_a_stop_inside_a_call_is_told() -> None:
    """The stop, the lock that ran out, the new owner and the two calls, with their times."""
    plan = stop_inside_a_call()
    found = violation_of(run_plan(WORLDS, plan))
    assert found is not None
    explanation = explain(WORLDS, plan, found.kind)
    assert [event.fault for event in explanation.needed] == [Fault.JOIN, Fault.STALL]
    assert explanation.shortest_ms is not None
    assert 5_000 < explanation.shortest_ms < 12_000
    assert explanation.inevitable_ms is not None
    assert 10_000 < explanation.inevitable_ms <= explanation.finding.at_ms + 1
    text = "\n".join(words_of(explanation))
    assert "c2 joined the group" in text
    assert "c1 was stopped for 12.0 s (SIGSTOP), inside its call on offset" in text
    assert "c1's lock ran out" in text
    assert "is kept for 6.0 s" in text
    assert "the broker gave the lock to c2" in text
    assert "c1 sent its last commit before this, offset 1; the broker stored it at 3.511 s" in text
    assert "10.0.0." not in text, "hosts have names"
    lines = text.splitlines()
    moments = [float(line.split()[0]) for line in lines[lines.index("What happened") + 1 :]]
    assert moments == sorted(moments)


def test_a_commit_that_comes_late_is_told() -> None:
    """The broker stores the old owner's last commit when the next owner has begun."""
    plan = stop_inside_a_call()
    held = FaultEvent(3_200, Fault.TO_BROKER_HELD, "c1", 9_000)
    run = run_plan(WORLDS, replace(plan, events=(plan.events[0], held, *plan.events[1:])))
    found = violation_of(run)
    assert found is not None
    (told,) = [fact.text for fact in facts_of(run, found) if fact.text.startswith("c1 sent its last commit")]
    assert told.startswith("c1 sent its last commit before this, offset 1; the broker stored it at 12.2"), told


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault.BROKER_HEARS, "the connections between the broker and c1 ended at the broker; c1 did not hear of it"),
        (Fault.MEMBER_HEARS, "the connections between c1 and the broker ended at c1; the broker did not hear of it"),
        (Fault.TO_MEMBER_HELD, "nothing that the broker sent reached c1 for 500 ms"),
        (Fault.TO_BROKER_HELD, "nothing that c1 sent reached the broker for 500 ms"),
        (Fault.SLOW_ANSWERS, "the answers of the broker reached c1 late, and then not at all"),
    ],
)
def test_the_hosts_of_a_fault_are_not_swapped(fault: Fault, told: str) -> None:
    """Who hears of an end, and whose bytes are held, as the fault was played."""
    plan = replace(stop_inside_a_call(), life_ms=10_000, events=(FaultEvent(5_000, fault, "c1", 500),))
    run = run_plan(WORLDS, plan)
    assert run.played is not None
    (band,) = run.played.findings.bands
    assert fault_words(band).startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hold broker-c1@5s+2s", "FAULT  hold broker-c1 2000 ms"),
        ("slow c1-broker@5s+2s=250ms", "FAULT  slow c1-broker 2000 ms 250ms"),
        ("leave c1@5s", "FAULT  leave c1 0 ms"),
    ],
)
def test_a_replay_names_both_hosts_and_the_amount(text: str, told: str) -> None:
    """Of a fault of a story."""
    story = experiment(consumers=1, queues=1, rate=0, life="10s", events=[text])(_nothing)
    lines = story_of(story.run())
    assert [line.partition(" s  ")[2] for line in lines if "FAULT" in line] == [told]


async def _nothing(_: StoryCluster) -> None:
    """The story does nothing of its own."""
