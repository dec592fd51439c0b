"""The audit at scale: traces and a topic of 1, 3 and 10 million messages, made from a seed, audited on local[2].

    python -m scripts.bench.audit [--millions 1,3,10] [--driver-memory 2200m] [--folder FOLDER]

Prints a row for each size: seconds of the clock and of processors, each per million, and the peak memory of the JVM and
all Python processes together. The first size includes the one-time work of the JVM's compiler.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from lockstep.pipeline.audit import read_traces, transform
from lockstep.pipeline.audit.generate import Shape, write_topic, write_traces
from lockstep.pipeline.spark.session import end_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_S = 0.5
# Limits on memory outside of the heap: direct buffers of Netty and Parquet, and one glibc arena for two threads.
JAVA_OPTIONS = "-XX:MaxDirectMemorySize=256m"
ARENAS = "2"
WIDTH = 150  # of the table without a terminal
COLUMNS = (
    "messages", "traces", "made in", "audited in", "per million", "CPU", "CPU per million", "most memory", "verdict",
)  # fmt: skip


class Tree(threading.Thread):
    """The peak memory of this process and all its descendants together, sampled twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            self.most_bytes = max(self.most_bytes, sum(memory_bytes(pid) for pid in family(os.getpid())))


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
            for child in children:
                if not is_unborn(child, pid):
                    yield from family(child)
        except OSError:
            continue


def is_unborn(child: int, parent: int) -> bool:
    """Whether a child of the JVM has not started its program yet: until then it shows the JVM's memory."""
    programs = [Path(f"/proc/{pid}/exe").readlink() for pid in (child, parent)]
    return programs[0] == programs[1] and programs[0].name == "java"


def memory_bytes(pid: int) -> int:
    """Private memory, and a share of shared memory; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def cpu_s() -> float:
    """Processor seconds of the processes so far, in user and in kernel mode."""
    ticks = 0
    for pid in family(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # and of ended children
    return ticks / os.sysconf("SC_CLK_TCK")


def audited(spark: "SparkSession", traces: str, topic: str) -> dict[str, Any]:
    """The row of the summary; every table is computed."""
    with transform(read_traces(spark, traces), spark.read.parquet(topic)) as tables:
        for name in tables:
            tables[name].write.format("noop").mode("overwrite").save()
        row: dict[str, Any] = tables["summary"].collect()[0].asDict()
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", default="1,3,10")
    parser.add_argument("--driver-memory", default="2200m")
    parser.add_argument("--folder", default="")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="lockstep-bench-"))
    os.environ.setdefault("MALLOC_ARENA_MAX", ARENAS)
    settings = {
        "spark.sql.shuffle.partitions": "16",
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    spark = spark_session("bench_audit", master="local[2]", driver_memory=arguments.driver_memory, settings=settings)
    console = Console(width=None if Console().is_terminal else WIDTH)
    table = Table(*COLUMNS)
    try:
        for millions in map(float, arguments.millions.split(",")):
            table.add_row(*measured(spark, folder, int(millions * 1_000_000)))
            console.print(table)
    finally:
        end_session(spark)
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)


def measured(spark: "SparkSession", folder: Path, messages: int) -> list[str]:
    """A row of the table."""
    shape, traces, topic = Shape(messages), folder / "traces", folder / "topic"
    began = time.monotonic()
    write_topic(spark, shape, str(topic))
    write_traces(spark, shape, str(traces))
    made = time.monotonic()
    size = sum(path.stat().st_size for path in traces.rglob("*.txt"))
    memory, used = Tree(), cpu_s()
    memory.start()
    row = audited(spark, str(traces), str(topic))
    took, used = time.monotonic() - made, cpu_s() - used
    memory.ended.set()
    memory.join()
    right = row["in_order"] and row["handled"] == row["sent"] == messages and not row["violations"]
    verdict = f"in order, {row['duplicates']:,} repeats" if right else f"WRONG: {row}"
    return [
        f"{messages:,}",
        f"{size / 1e9:.2f} GB",
        f"{made - began:.0f} s",
        f"{took:.0f} s",
        f"{took / messages * 1e6:.1f} s",
        f"{used:.0f} s",
        f"{used / messages * 1e6:.1f} s",
        f"{memory.most_bytes / 1e9:.2f} GB",
        verdict,
    ]


if __name__ == "__main__":
    main()
