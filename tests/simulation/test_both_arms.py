"""Worlds are the same with the native kernels as with their twins in Python: the same traces, the same verdicts."""

import os
import subprocess
import sys

import pytest

from lockstep.protocol.native import INTERFACE

_WORLDS = """
from lockstep.protocol.native import arm
from lockstep.simulation.lab.experiment import LOCKING
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed

print(arm())
for name in ("worlds", "worlds/sends", "worlds/fifo"):
    for mode in LOCKING:
        for seed in (1, 2):
            print(run_seed(find_experiment(name), seed, mode))
"""


def _seen(arm: str) -> list[str]:
    """The arm, and a line for each world."""
    environ = {**os.environ, "LOCKSTEP_NATIVE": arm}
    done = subprocess.run([sys.executable, "-c", _WORLDS], env=environ, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.long
def test_both_arms_play_the_same_worlds() -> None:
    """Two seeds of three experiments in each lock mode."""
    part = pytest.importorskip("lockstep.protocol._native", reason="no native part: make native")
    if getattr(part, "INTERFACE", 0) != INTERFACE:
        pytest.skip("the native part is of another version: make native")
    (python, *twins), (native, *worlds) = _seen("0"), _seen("1")
    assert (python, native) == ("pure Python", "native")
    assert worlds == twins
    assert len(worlds) == 12
