"""A comparison on Spark: each run costs what it costs in this process, and the command prints and writes it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.pipeline.cli.compare import run_compare
from lockstep.pipeline.cli.options import CompareOptions
from lockstep.pipeline.jobs.compare import trial_of_row
from lockstep.simulation.search.compare import run_trials
from lockstep.simulation.search.ways import Base, read_ways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_costs_are_those_of_one_process(
    spark: "SparkSession", tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    texts = ["lock_mode=faithful,fifo", "consumers=2", "rate=1", "for=30s"]
    base, ways = Base("takeover"), read_ways(texts)
    options = CompareOptions(
        name="takeover", with_=texts, seeds=2, to=tmp_path / "runs", page=tmp_path / "pages" / "deploy.html"
    )
    assert run_compare(spark, base, ways, options)
    rows = spark.read.parquet(str(tmp_path / "runs")).orderBy("way", "seed").collect()
    expected = list(run_trials(base, ways, [(way, seed) for way in range(2) for seed in (1, 2)]))
    assert [trial_of_row(row) for row in rows] == expected
    assert "2 ways, 2 seeds each" in capfdbinary.readouterr().out.decode()
    assert "<svg" in (tmp_path / "pages" / "deploy.html").read_text(encoding="utf-8")
