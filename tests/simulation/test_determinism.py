"""Same seed, same trace: in this process, in others, under other string hashes and other memory addresses."""

import os
import subprocess
import sys
from pathlib import Path

from lockstep.simulation import SimulationOptions, World, simulate

BUSY_WORLD = Path(__file__).with_name("busy_world.py")
SEEDS = ("0", "1", "2")


def run_elsewhere(hash_seed: str, ballast: int, *seeds: str) -> list[str]:
    """The lines that busy_world.py prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(BUSY_WORLD), str(ballast), *seeds],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout.split("\n")


def test_the_trace_hash_depends_on_the_seed_alone() -> None:
    """Two processes with different PYTHONHASHSEED and memory agree on every seed; the seeds differ."""
    first = run_elsewhere("1", 0, *SEEDS)
    second = run_elsewhere("4242", 12_345, *SEEDS)
    assert first == second
    assert len(set(first)) == len(SEEDS) + 1


def test_the_trace_hash_sees_a_careless_program() -> None:
    """Code that iterates over a set of strings is found out by a second PYTHONHASHSEED."""
    assert run_elsewhere("1", 0, "careless") != run_elsewhere("2", 0, "careless")
    assert run_elsewhere("1", 0, "careless") == run_elsewhere("1", 99, "careless")


def test_the_hash_covers_what_the_kept_lines_do_not() -> None:
    """However few lines are kept, the hash is that of all."""

    async def scenario(world: World) -> None:
        for number in range(1_000):
            world.record(f"line {number}")
            await world.sleep_ms(1)

    whole = simulate(scenario)
    short = simulate(scenario, options=SimulationOptions(trace_lines_max=10))
    assert short.trace_hash == whole.trace_hash
    assert short.trace == whole.trace[-10:]
    assert whole.trace[-1] == "+0.999000000  record     line 999"


def test_the_hash_takes_any_text() -> None:
    """Also one that has no UTF-8 form; and the time at which somebody looks at the hash does not change it."""

    async def scenario(world: World) -> None:
        for text in ("\ud800", "", "\ud800"):
            world.record(text)
            assert not looks or world.trace.digest

    looks = False
    unseen = simulate(scenario).trace_hash
    looks = True
    assert simulate(scenario).trace_hash == unseen
