"""Records of one nanosecond: the order of two processes is not known then, and nothing is claimed of it.

Each history is judged with its traces in both orders. With a nanosecond between the two records it is a violation.
"""

import copy
import random
from collections.abc import Callable
from itertools import permutations
from typing import Any, Final

import pytest

from lockstep.order import Confidence, Kind, OrderChecker, OrderReport, merge_traces
from lockstep.order.judge.survey import survey
from tests.order.good_histories import GOOD
from tests.order.good_table import ONE_CLOCK_ALONE
from tests.order.scripts import traces_of
from tests.order.stories import Story, kinds, owned
from tests.order.ways import Records
from tests.order.worlds import run

MS: Final = 1_000_000


def judged(traces: list[Records]) -> OrderReport:
    """As `check_traces`, which sorts files by their first records; here they have the order that they have."""
    facts = survey(traces)
    checker = OrderChecker(facts)
    checker.feed_all(merge_traces(traces, facts.clocks))
    return checker.report()


def reports(story: Story) -> list[OrderReport]:
    """Of the traces in each order."""
    return [judged([story.traces[name] for name in names]) for names in permutations(story.traces)]


def at(record: dict[str, Any], other: dict[str, Any], later_ns: int) -> None:
    """Move a record to the time of another one, or later."""
    record["mono_ns"] = other["mono_ns"] + later_ns
    record["wall_ms"] = other["wall_ms"] + later_ns // MS


def begins_at_the_drop(story: Story, later_ns: int) -> None:
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    dropped = story.record("a", "dropped", period=1, why="rebalance")
    late = story.handle("a", 1, 1)[0]
    late["begin_mono_ns"] = dropped["mono_ns"] + later_ns
    late["mono_ns"] = late["begin_mono_ns"] + MS


def begins_at_the_loss(story: Story, later_ns: int) -> None:
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    lost = story.record("a", "lock_lost", period=1)
    late = story.handle("a", 1, 1)[0]
    late["begin_mono_ns"] = lost["mono_ns"] + later_ns
    late["mono_ns"] = late["begin_mono_ns"] + MS


def granted_at_once(story: Story, later_ns: int) -> None:
    """b had the queue, and gave it to a within a nanosecond, or took it from a."""
    story.own("a", 1, 0)
    acquired, positioned = story.traces["a"]
    story.record("b", "acquired", period=1)
    story.record("b", "positioned", period=1, offset=0)
    story.record("b", "dropped", period=1, why="rebalance")
    for record in story.traces["b"]:
        at(record, acquired, later_ns)
    at(positioned, acquired, 0)
    story.handle("a", 1, 0)


def first_handled_at_once(story: Story, later_ns: int) -> None:
    """Two messages of a key, by two members whose calls end together."""
    story.own("a", 1, 0)
    first = story.handle("a", 1, 0)[0]
    story.record("a", "dropped", period=1, why="rebalance")
    story.own("b", 1, 1)
    second = story.handle("b", 1, 1)[0]
    for record in (first, *story.traces["a"][3:], *story.traces["b"]):
        at(record, story.traces["a"][1], MS)
    first["begin_mono_ns"] = second["begin_mono_ns"] = first["mono_ns"]
    at(first, second, later_ns)
    at(story.traces["a"][-1], first, 0)


def committed_at_the_position(story: Story, later_ns: int) -> None:
    """The only commit of a is below the offset at which b begins."""
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    story.own("b", 1, 2)
    commit = story.record("a", "committed", period=1, offset=1)
    at(commit, story.traces["b"][-1], later_ns)


def stored_at_once(story: Story, later_ns: int) -> None:
    """Two members say what was stored."""
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    high = story.record("a", "stored", offset=2)
    low = story.record("b", "stored", offset=1)
    at(low, high, later_ns)


def calls_end_at_once(story: Story, later_ns: int) -> None:
    """The call of a ends when a call of b begins, and ends too."""
    story.own("a", 1, 0)
    first = story.handle("a", 1, 0)[0]
    story.record("a", "dropped", period=1, why="rebalance")
    story.own("b", 1, 1)
    second = story.handle("b", 1, 1)[0]
    for record in (first, *story.traces["a"][3:], *story.traces["b"]):
        at(record, first, 0)
    second["begin_mono_ns"] = second["mono_ns"]
    first["mono_ns"] += later_ns
    second["mono_ns"] += 2 * later_ns


TIES: Final[dict[Callable[[Story, int], None], Kind]] = {
    begins_at_the_drop: Kind.STALE_OWNER,
    begins_at_the_loss: Kind.STALE_OWNER,
    granted_at_once: Kind.STALE_OWNER,
    first_handled_at_once: Kind.NONMONOTONIC_POLL,
    committed_at_the_position: Kind.STALE_COMMIT,
    stored_at_once: Kind.STORED_REGRESS,
    calls_end_at_once: Kind.OVERLAP,
}


@pytest.mark.parametrize("history", TIES, ids=lambda history: history.__name__)
def test_two_records_of_one_nanosecond_prove_nothing(history: Callable[[Story, int], None]) -> None:
    """In whichever order the files are named, nothing is found."""
    story = Story()
    history(story, 0)
    for report in reports(story):
        assert kinds(report) == []
        assert not report.undecided_counts


@pytest.mark.parametrize("history", TIES, ids=lambda history: history.__name__)
def test_a_nanosecond_later_is_a_violation(history: Callable[[Story, int], None]) -> None:
    """The same records with their order."""
    story = Story()
    history(story, 1)
    for report in reports(story):
        assert TIES[history] in kinds(report)
        assert all(one.confidence is Confidence.CERTAIN for one in report.violations)


@pytest.mark.parametrize("later_ns", [0, 1])
def test_a_position_below_a_commit_of_the_same_nanosecond_is_open(later_ns: int) -> None:
    """The commit may have come behind the position; a nanosecond earlier it had not."""
    story = owned()
    story.handle("a", 1, 0, 1)
    stored = story.record("broker", "stored", offset=2)
    story.own("b", 1, 0)
    at(story.traces["b"][0], stored, later_ns)
    at(story.traces["b"][1], stored, later_ns)
    story.handle("b", 1, 0, 1)
    for report in reports(story):
        assert (Kind.REWIND_BELOW_COMMIT in kinds(report)) is bool(later_ns)


# A clock with coarse steps ------------------------------------------------------------------------------------


def coarse(traces: list[Records], step_ns: int, rng: random.Random) -> list[Records]:
    """What the same processes write on a clock with such steps, in files of any order."""
    found = copy.deepcopy(traces)
    for record in (record for trace in found for record in trace):
        for name in ("mono_ns", "begin_mono_ns"):
            if name in record:
                record[name] -= record[name] % step_ns
    rng.shuffle(found)
    return found


def alarms(name: str, traces: list[Records], steps: tuple[int, ...]) -> list[str]:
    rng = random.Random(name)
    found = [(step, judged(coarse(traces, step, rng))) for step in steps for _ in range(3)]
    return [
        f"{name}, steps of {step} ns: {text}"
        for step, report in found
        for text in [*(one.sentence for one in report.violations), *(["lost"] if report.lost else [])]
    ]


def test_good_histories_stay_good_on_a_coarse_clock() -> None:
    """Steps of a millisecond and more make ties of most handovers."""
    found = [
        alarm
        for name, script in GOOD.items()
        if name not in ONE_CLOCK_ALONE
        for alarm in alarms(name, list(traces_of(script).values()), (3 * MS, 10 * MS))
    ]
    assert found == []


@pytest.mark.parametrize("seed", range(4))
def test_simulated_runs_stay_good_on_a_coarse_clock(seed: int) -> None:
    """Real brokers and clients."""
    traces = run(seed, ordering=("queue", "key")[seed % 2]).one_clock
    assert alarms(str(seed), traces, (MS, 50 * MS)) == []
