"""`lockstep-pipeline sweep`: runs seeds on Spark, writes their outcomes, and prints what lockstep-sim sweep prints."""

from typing import TYPE_CHECKING

from lockstep.cli.output import OutputFormat, json_line, write_out
from lockstep.pipeline.cli.options import SweepOptions
from lockstep.pipeline.jobs.sweep import outcome_of_row, sweep
from lockstep.pipeline.spark.progress import JobProgress
from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.search.rows import sweep_row
from lockstep.simulation.search.summary import Summary, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_sweep"]


def run_sweep(spark: "SparkSession", options: SweepOptions) -> bool:
    """Returns whether order was kept and enough happened. Raises Spark's errors."""
    modes = list(LOCKING) if options.lock_mode == "both" else [LockMode(options.lock_mode)]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    summary = Summary(options.name)
    with JobProgress(spark, f"sweep of {options.name}"):
        outcomes = sweep(spark, options.name, seeds, modes)
        if options.to is not None:
            folder = str(options.to)
            outcomes.write.mode("errorifexists").format(options.kind).save(folder)
            outcomes = spark.read.schema(outcomes.schema).format(options.kind).load(folder)
        for row in outcomes.orderBy("seed", "mode").toLocalIterator():
            summary.add(outcome_of_row(row))
    if options.output is OutputFormat.JSON:
        counted = sweep_row(summary, modes, wanted=len(seeds) * len(modes))
        write_out(json_line(counted).encode("utf-8", "replace") + b"\n")
    else:
        write_out("".join(f"{line}\n" for line in report(summary, modes)).encode())
    return summary.good
