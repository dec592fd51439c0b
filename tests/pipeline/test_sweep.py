"""A sweep on Spark: each seed has the outcome that it has in this process, and the command counts and writes them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.cli.output import OutputFormat
from lockstep.pipeline.cli.options import OutputFiles, SweepOptions
from lockstep.pipeline.cli.sweep import run_sweep
from lockstep.pipeline.jobs.sweep import outcome_of_row, sweep
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.experiment import WORLDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(30, 33)  # in faithful mode with violations


def test_outcomes_are_those_of_one_process(spark: "SparkSession") -> None:
    """Hash, violations, texts and counts: a Python worker of Spark runs a seed as any process does."""
    rows = sweep(spark, "worlds", SEEDS, [LockMode.FAITHFUL]).collect()
    found = sorted(map(outcome_of_row, rows), key=lambda one: one.seed)
    assert found == [run_seed(WORLDS, seed, LockMode.FAITHFUL) for seed in SEEDS]
    assert any(one.wrong for one in found)


@pytest.mark.parametrize("kind", OutputFiles)
def test_outcomes_are_written(
    spark: "SparkSession", tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], kind: OutputFiles
) -> None:
    """As files that Spark reads; the report has their counts, and three seeds show too little."""
    folder = tmp_path / "outcomes"
    options = SweepOptions(name="worlds", seeds=2, first_seed=31, lock_mode="faithful", to=folder, kind=kind)
    assert not run_sweep(spark, options)
    rows = spark.read.format(kind).load(str(folder)).collect()
    assert sorted((row["seed"], row["mode"]) for row in rows) == [(31, "faithful"), (32, "faithful")]
    out = capfdbinary.readouterr().out.decode()
    assert "seeds                                          2" in out
    assert "TOO RARE in faithful mode" in out


def test_the_counts_are_an_object(spark: "SparkSession", capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """In the shape of `lockstep-sim sweep -o json`."""
    options = SweepOptions(name="worlds", seeds=1, first_seed=31, lock_mode="faithful", output=OutputFormat.JSON)
    assert not run_sweep(spark, options)
    row = json.loads(capfdbinary.readouterr().out)
    assert (row["experiment"], row["complete"], row["seeds"]) == ("worlds", True, {"faithful": 1})
    assert {"good", "violations", "happened", "too_rare", "failing"} < set(row)
