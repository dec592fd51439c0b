"""`lockstep-pipeline compare`: runs a story in several ways on Spark, and prints what lockstep-sim compare prints."""

from typing import TYPE_CHECKING

from lockstep.cli.output import OutputFormat, json_line, note, write_out
from lockstep.pipeline.cli.options import CompareOptions
from lockstep.pipeline.jobs.compare import compare, trial_of_row
from lockstep.pipeline.spark.progress import JobProgress
from lockstep.simulation.search.compare import Comparison
from lockstep.simulation.search.compare_texts import comparison_lines, comparison_page, comparison_row
from lockstep.simulation.search.ways import Base, Way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_compare"]


def run_compare(spark: "SparkSession", base: Base, ways: list[Way], options: CompareOptions) -> bool:
    """Returns whether every run reached its end. Raises Spark's errors."""
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with JobProgress(spark, f"comparison of {options.name}"):
        trials = compare(spark, base, ways, seeds)
        if options.to is not None:
            folder = str(options.to)
            trials.write.mode("errorifexists").format(options.kind).save(folder)
            trials = spark.read.schema(trials.schema).format(options.kind).load(folder)
        found = [trial_of_row(row) for row in trials.orderBy("way", "seed").toLocalIterator()]
    comparison = Comparison(base, ways, found)
    if options.output is OutputFormat.JSON:
        write_out(json_line(comparison_row(comparison)).encode("utf-8", "replace") + b"\n")
    else:
        write_out("".join(f"{line}\n" for line in comparison_lines(comparison)).encode())
    if options.page is not None:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(comparison_page(comparison), encoding="utf-8")
        note(f"the page is {options.page}")
    return not comparison.errors()
