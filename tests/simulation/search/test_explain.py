"""Explanations: the faults that are needed, how long, until when healing helps, and sentences that evidence bears."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.simulation.lab.experiment import FaultEvent, LockMode
from lockstep.simulation.lab.faults.words import fault_words
from lockstep.simulation.lab.findings import Band
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.lab.user.story import experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.search.explain import Healed, explain, lasted_ms
from lockstep.simulation.search.facts import facts_of
from lockstep.simulation.search.texts import story_of, words_of
from lockstep.simulation.search.violation import violation_of
from lockstep.simulation.worlds.experiment import WORLDS
from lockstep.simulation.worlds.plan import Fault, Store, WorldPlan, draw_plan
from tests.simulation.search.toy import SILENT, Toy, ToyPlan

_MODES = {"last-to-ask-wins": LockMode.FENCED, "commit-before-call": LockMode.FENCED}
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


@pytest.mark.long
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


def stop_inside_a_call() -> WorldPlan:
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
@pytest.mark.long
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
    assert "c1 sent its last commit before this, offset 1; the broker stored it at 3.514 s" in text
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


def facts_of_exhibit(name: str, *kept_ms: int, seed: int = 0) -> list[str]:
    """The facts of an exhibit's first violation, with those faults alone that begin at these times.

    Args:
        seed: 0: that of the exhibit's first finding.
    """
    exhibit: Any = find_experiment(f"museum/{name}")
    plan = exhibit.draw(seed or exhibit.found.seed, _MODES.get(name, LockMode.FAITHFUL))
    run = run_plan(exhibit, replace(plan, events=tuple(event for event in plan.events if event.at_ms in kept_ms)))
    violation = violation_of(run)
    assert violation is not None
    return [fact.text for fact in facts_of(run, violation)]


def test_a_commit_is_not_taken_for_that_of_another_member() -> None:
    """Both members commit offset 9. That of c2 was held: the one that the broker stored first is of c1."""
    facts = facts_of_exhibit("evicted-member", 36_762, 40_245, seed=32)
    assert "c2 sent its last commit before this, offset 9; the broker stored it at 54.488 s" in facts
    assert "c1 sent its last commit before this, offset 9; the broker stored it at 53.974 s" in facts
    assert "the broker stored offset 9 for the group, a commit of c1" in facts


def test_the_end_of_a_fault_is_not_told_while_another_one_lasts() -> None:
    """The second partition begins before the first one ends: no byte passes then."""
    facts = facts_of_exhibit("old-commit-again", 14_495, 20_046)
    assert "bytes passed between c1 and the broker again" not in facts
    assert "bytes passed between the broker and c1 again" in facts


def test_a_host_that_was_down_is_not_shut_down_again() -> None:
    """The second shutdown meets a host that is down, and keeps it so."""
    facts = facts_of_exhibit("error-means-latest", 5_190, 6_262, 8_582, 9_714, 12_425, 14_561)
    assert facts.count("c1 was shut down") == 1
    assert "c1 stayed down, and started again after 70.8 s" in facts
    assert "c2 began to read at offset 21" in facts, "offset 20 is the one that was lost"
    assert "c1 handled offset 19" in facts


def test_a_lock_that_was_taken_in_time_has_not_run_out() -> None:
    """The broker gives c2's lock to c1 0.6 s after its renewal. And no sentence has a client id."""
    facts = facts_of_exhibit("last-to-ask-wins", 7_198, 7_637, 15_546)
    given = "the broker gave the lock to c1, although c2's lock was renewed at 15.213 s, and is kept for 6.0 s"
    assert given in facts
    assert not [fact for fact in facts if fact.startswith("c2's lock ran out") or "10.0.0." in fact]


def test_a_commit_under_an_epoch_has_the_time_at_which_it_was_sent() -> None:
    """Its record is written when it is answered."""
    facts = facts_of_exhibit("commit-before-call")
    assert "c1 sent its last answered commit before this, offset 2; the broker stored it at 7.025 s" in facts


def test_the_calls_of_the_message_that_a_violation_names_are_told() -> None:
    """Offset 0 was handled once, long before the violation, and failed."""
    facts = facts_of_exhibit("failed-message")
    (told,) = [fact for fact in facts if fact.startswith("c1 handled offset 0 until")]
    assert told.endswith("; its listener answered SUSPEND_CURRENT_QUEUE_A_MOMENT")


@pytest.mark.long
def test_a_run_with_fewer_faults_has_its_own_time() -> None:
    """The head of an explanation names the seed's violation; its facts are those of the needed faults alone."""
    found = explain(Toy(), ToyPlan(events=(*NOISE[:2], FaultEvent(20_000, "stall", "c1", 90_000))), SILENT)
    assert "With it alone it happens at 80.200 s, as told below." in "\n".join(words_of(found))


def test_the_length_of_a_fault_is_that_of_the_play() -> None:
    """A world plays a quarter of a restart's duration: the shortest one is told as it was played."""
    plan = replace(draw_plan(1, LockMode.FAITHFUL), events=(FaultEvent(5_000, Fault.BROKER_KILL, "c1", 8_000),))
    assert 2_000 <= lasted_ms(WORLDS, plan) < 2_500


def test_a_replay_says_which_faults_were_not_played() -> None:
    """c2 is not there yet when it should stop. The broker's faults name no member."""
    stop, kill = FaultEvent(1_000, Fault.STALL, "c2", 500), FaultEvent(5_000, Fault.BROKER_KILL, "c1", 500)
    plan = replace(stop_inside_a_call(), life_ms=10_000, events=(stop, kill))
    told = [line.partition(" s  ")[2] for line in story_of(run_plan(WORLDS, plan)) if "FAULT" in line]
    assert told == [
        "FAULT  stall c2 500 ms  (not played: its hosts were not in a state for it)",
        "FAULT  broker kill 500 ms",
    ]


@pytest.mark.parametrize("fault", ["busy", "full", "close"])
def test_each_fault_has_a_sentence(fault: str) -> None:
    """Also those that one world alone plays."""
    assert not fault_words(Band(1_000, 2_000, fault, "broker", "c1")).startswith(f"{fault}:")


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
