"""What a story costs in several ways, over many seeds, spread over Spark's executors (`lockstep-pipeline compare`).

A run is one simulation in one Python worker, so its figures are those that `lockstep-sim compare` gets for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lockstep.simulation.search.compare import Trial, run_trials
from lockstep.simulation.search.ways import Base, Way

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["TRIAL_COLUMNS", "compare", "trial_of_row"]

TRIAL_COLUMNS: Final = "way int, seed long, figures map<string, double>, error string"
"""`way` is the number of a combination, from 0 on; `error` is empty at a good end."""

_RUNS_A_PART: Final = 8  # so that a lost executor costs little


def compare(spark: "SparkSession", base: Base, ways: Sequence[Way], seeds: range) -> "DataFrame":
    """The costs of each way with each seed, TRIAL_COLUMNS.

    Args:
        base: with a user's FILE.py:NAME, the file must be on every executor at this path.
    """
    from lockstep.pipeline.spark.arrow import map_in_arrow

    count = len(ways) * len(seeds)
    parts = max(-(-count // _RUNS_A_PART), min(count, spark.sparkContext.defaultParallelism))
    return map_in_arrow(spark.range(0, count, 1, parts), _trials(base, list(ways), seeds), TRIAL_COLUMNS)


def _trials(
    base: Base, ways: list[Way], seeds: range
) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def trials(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            for case in batch.column(0).to_pylist():
                number, way = divmod(case, len(ways))
                yield from map(_batch, run_trials(base, ways, [(way, seeds[number])]))

    return trials


def _batch(trial: Trial) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "way": pa.array([trial.way], pa.int32()),
            "seed": pa.array([trial.seed], pa.int64()),
            "figures": pa.array([list(trial.figures.items())], pa.map_(pa.string(), pa.float64())),
            "error": pa.array([trial.error]),
        }
    )


def trial_of_row(row: "Row") -> Trial:
    """The trial that a row of TRIAL_COLUMNS has."""
    return Trial(**row.asDict())
