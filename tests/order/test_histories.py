"""Small histories, good and corrupted, each in several kinds of traces: no alarm, and every wrong found and named."""

import random

import pytest

from lockstep.order import OrderReport, check_traces
from tests.order.corrupted_histories import CORRUPTED
from tests.order.good_histories import GOOD
from tests.order.good_table import ONE_CLOCK_ALONE
from tests.order.scripts import traces_of
from tests.order.ways import ONE_CLOCK, SEVERAL_CLOCKS, Way, by_wall_clock

OTHERWISE = {  # (history, way): what is found there, and why it is not what the row names
    ("one client id in two processes, one queue", "in_two_files"): "",  # a file with `closed` alone is no sign of work
    # A producer's trace says where a queue ends, and what else was to be handled.
    ("a stored offset that nobody handled", "with_producers"): "commit-beyond-end",
    ("a commit beyond the end, no producer", "with_producers"): "commit-beyond-end",
    ("by key, two of a key", "with_producers"): "lost|nonmonotonic-poll",
}
UNSEEN_ON_MACHINES = {
    "a new period below the commit": "its commit may have arrived later: the owner wrote nothing for a second",
    "a new period below the commit, concurrent": "its owners may overlap, so which of two was first is open",
    "the successor never handled": "it may have been the predecessor",
    "two grants at once": "without a call nothing bounds when the first owner was at work",
    "three grants at once": "as above",
}


def judged(script: str, way: Way, seed: str) -> tuple[OrderReport, set[str]]:
    """The report and its kinds, `?` before those that stay undecided."""
    report = check_traces(way(list(traces_of(script).values()), random.Random(seed)))
    assert report.broken_lines == 0, report.broken
    kinds = {str(kind) for kind in report.violation_counts} | {f"?{kind}" for kind in report.undecided_counts}
    return report, kinds | ({"lost"} if report.lost else set())


@pytest.mark.parametrize("way", [*ONE_CLOCK, by_wall_clock, *SEVERAL_CLOCKS])
def test_good_histories_raise_no_alarm(way: Way) -> None:
    """Handovers, failures, resets, crashed brokers, partitions: no violation, and nothing lost."""
    for name, script in GOOD.items():
        if way not in SEVERAL_CLOCKS or name not in ONE_CLOCK_ALONE:
            for seed in range(3):
                report, kinds = judged(script, way, f"{name} {seed}")
                assert {kind for kind in kinds if not kind.startswith("?")} == set(), "\n".join([name, *report.lines()])


def test_good_histories_of_one_clock_are_decided() -> None:
    """But for those where no trace can tell a broker's loss of commits from an administrator's rewind."""
    open_ones = {name for name, script in GOOD.items() if judged(script, ONE_CLOCK[0], name)[1]}
    assert open_ones == {name for name in GOOD if "while nobody consumes" in name}


@pytest.mark.parametrize("way", ONE_CLOCK)
def test_corrupted_histories_are_found_and_named(way: Way) -> None:
    """Each under the kinds that its row names, and under no other."""
    for name, (kinds, script) in CORRUPTED.items():
        report, found = judged(script, way, name)
        expected = OTHERWISE.get((name, way.__name__), kinds)
        assert found == set(filter(None, expected.split("|"))), "\n".join([name, *report.lines()])
        assert report.in_order is not bool(expected), name


@pytest.mark.parametrize("way", SEVERAL_CLOCKS)
def test_corrupted_histories_of_several_machines_are_found_or_undecided(way: Way) -> None:
    """On clocks that are up to half a second apart, with causes and without: none is in order."""
    for name, (_, script) in CORRUPTED.items():
        if name not in UNSEEN_ON_MACHINES:
            for seed in range(3):
                report, found = judged(script, way, f"{name} {seed}")
                assert found, "\n".join([name, *report.lines()])
