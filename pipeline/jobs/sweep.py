"""Many seeds of the simulator, spread over Spark's executors (`lockstep-pipeline sweep`).

A seed is one simulation in one Python worker, so its outcome is the one that `lockstep-sim sweep` gets for it.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["OUTCOME_COLUMNS", "SEEDS_A_PART", "outcome_of_row", "sweep"]

OUTCOME_COLUMNS: Final = (
    "seed long, mode string, trace_hash string, wrong map<string, int>, texts array<string>, "
    "sometimes map<string, int>, error string"
)
"""`wrong` and `sometimes` count what the seed had, `texts` are its first violations; `error` is empty at a good end."""

SEEDS_A_PART: Final = 32  # so that a lost executor costs little


def sweep(spark: "SparkSession", name: str, seeds: range, modes: Sequence[LockMode]) -> "DataFrame":
    """The outcomes of an experiment, OUTCOME_COLUMNS, one row a seed and lock mode.

    Args:
        name: of the experiment; a user's FILE.py:NAME must be on every executor at this path.
    """
    from lockstep.pipeline.spark.arrow import map_in_arrow

    parts = max(-(-len(seeds) // SEEDS_A_PART), min(len(seeds), spark.sparkContext.defaultParallelism))
    rows = spark.range(seeds.start, seeds.stop, 1, parts)
    return map_in_arrow(rows, _outcomes(name, list(modes)), OUTCOME_COLUMNS)


def _outcomes(name: str, modes: list[LockMode]) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def outcomes(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        experiment = find_experiment(name)
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                yield _batch([run_seed(experiment, seed, mode) for mode in modes])
                gc.collect()  # a simulation freezes what is there, also the worlds that are over

    return outcomes


def _batch(outcomes: list[SeedResult]) -> "pa.RecordBatch":
    import pyarrow as pa

    counts = pa.map_(pa.string(), pa.int32())
    return pa.RecordBatch.from_pydict(
        {
            "seed": pa.array([one.seed for one in outcomes], pa.int64()),
            "mode": pa.array([str(one.mode) for one in outcomes]),
            "trace_hash": pa.array([one.trace_hash for one in outcomes]),
            "wrong": pa.array([list(one.wrong.items()) for one in outcomes], counts),
            "texts": pa.array([one.texts for one in outcomes], pa.list_(pa.string())),
            "sometimes": pa.array([list(one.sometimes.items()) for one in outcomes], counts),
            "error": pa.array([one.error for one in outcomes]),
        }
    )


def outcome_of_row(row: "Row") -> SeedResult:
    """The outcome that a row of OUTCOME_COLUMNS has."""
    return SeedResult.from_json(row.asDict())
