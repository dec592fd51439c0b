"""Full runs of Python's garbage collector stay short while tables grow."""

import subprocess
import sys

import pytest

from lockstep.broker.full_collections import FullCollections
from tests.commands import TIMEOUT_S

MS = 1_000_000
FULL, YOUNG = 2, 1


@pytest.mark.parametrize(("generation", "took_ms", "frozen"), [(FULL, 6, 1), (FULL, 4, 0), (YOUNG, 60, 0)])
def test_what_survives_a_long_full_run_is_frozen(generation: int, took_ms: int, frozen: int) -> None:
    """Objects that survive a short one, or a run of younger objects, may still become garbage."""
    clock, calls = [7 * MS], []
    collections = FullCollections(lambda: clock[0], lambda: calls.append("freeze"))
    collections.on_run("start", {"generation": generation})
    clock[0] += took_ms * MS
    collections.on_run("stop", {"generation": generation, "collected": 0, "uncollectable": 0})
    assert len(calls) == frozen


def test_a_table_of_a_million_objects_is_not_visited_again_and_again() -> None:
    """The last full run visits few of them, so its length does not grow with the table."""
    program = """
import gc, time
from lockstep.broker.full_collections import FullCollections
FullCollections(time.perf_counter_ns).watch()
table, visited_max = {}, 0
def on_run(phase, info):
    global visited_max
    if phase == "start" and info["generation"] == 2:
        visited_max = max(visited_max, len(gc.get_objects()))
gc.callbacks.insert(0, on_run)
for number in range(1_000_000):
    table[number] = [number]
print(visited_max)
"""
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert int(done.stdout) < 500_000
