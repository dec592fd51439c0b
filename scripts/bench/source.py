"""How fast Spark reads a topic, beside Parquet files of the same rows: 128 B bodies, a broker process, local[2].

    python -m scripts.bench.source [--messages 2000000] [--queues 2] [--body-bytes 128] [--vary] [--rounds 5] [--stream]

One round warms up; then source and Parquet take turns, and a figure is the median of the rounds. It is of the whole
query with its planning. Columns: all, then only offset and value. Queries: `length` needs each value's length, `hash`
each of its bytes. With --stream a stream reads the topic in one micro-batch.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from lockstep.client import AdminClient
from lockstep.pipeline.client.blocking import Addresses
from lockstep.pipeline.spark.session import end_session, spark_session
from lockstep.pipeline.spark.streams import stream_progress
from lockstep.protocol.messages.batch import BatchRecord
from lockstep.testing.process import BrokerProcess

TOPIC = "bench"
BATCH = 1_000
SCHEMAS = {"all columns": "", "offset, value": "offset bigint, value binary"}
TOUCHES = {
    "length": ("count(1) rows", "sum(length(value)) bytes", "max(offset) top"),
    "hash": ("count(1) rows", "max(xxhash64(value)) bytes", "max(offset) top"),
}


async def create(name_server: str, queues: int) -> None:
    async with AdminClient(name_server=name_server) as admin:
        await admin.create_topic(TOPIC, queues)


def fill(name_server: str, messages: int, queues: int, body_bytes: tuple[int, int]) -> None:
    """Send batches with a tag, one of 1,000 keys and a UNIQ_KEY for each message, bodies of a size in a range."""
    sizes = random.Random(1)
    asyncio.run(create(name_server, queues))
    texts = [f"TAGS\x01A\x02__SHARDINGKEY\x01key-{i:03}\x02UNIQ_KEY\x01{i:032}" for i in range(BATCH)]
    records = [BatchRecord(0, os.urandom(sizes.randint(*body_bytes)), text) for text in texts]
    with Addresses((name_server,)).open() as client:
        for i, queue in enumerate(client.writable_queues(TOPIC)):
            left = messages // queues + (i < messages % queues)
            while left > 0:
                client.send_batch(queue, records[:left], 1_700_000_000_000)
                left -= BATCH


def batch(spark: Any, name_server: str, schema: str, touch: str) -> int:
    reader = spark.read.format("lockstep").options(nameServer=name_server, subscribe=TOPIC)
    frame = (reader.schema(schema) if schema else reader).load()
    return int(frame.selectExpr(*TOUCHES[touch]).collect()[0].rows)


def stream(spark: Any, name_server: str, schema: str, touch: str) -> int:
    options = {"nameServer": name_server, "subscribe": TOPIC, "startingOffsets": "earliest"}
    reader = spark.readStream.format("lockstep").options(**options)
    frame = (reader.schema(schema) if schema else reader).load()
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.foreachBatch(
            lambda part, _: counts.append(part.selectExpr(*TOUCHES[touch]).collect()[0].rows)
        )
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        assert stream_progress(query.lastProgress).lag == 0
    return sum(counts)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process and its descendants."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        stats[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    below = {pid}
    while more := {child for child, (parent, _) in stats.items() if parent in below} - below:
        below |= more
    return sum(stats[child][1] for child in below if child in stats) / os.sysconf("SC_CLK_TCK")


def parquet(spark: Any, folder: str, columns: str, touch: str) -> int:
    frame = spark.read.parquet(folder)
    names = [column.split()[0] for column in columns.split(",")] if columns else frame.columns
    return int(frame.select(*names).selectExpr(*TOUCHES[touch]).collect()[0].rows)


def measure(spark: Any, broker: BrokerProcess, folder: str, given: argparse.Namespace) -> None:
    """Print the medians of each query and choice of columns, of source and of Parquet."""
    read = stream if given.stream else batch
    for columns_name, columns in SCHEMAS.items():
        for touch in TOUCHES:
            rates: dict[str, list[float]] = {"source": [], "parquet": []}
            costs: dict[str, list[float]] = {"source": [], "parquet": []}
            for turn in range(given.rounds + 1):
                for name in rates:
                    began, cpu_before = time.perf_counter(), cpu_s(os.getpid())
                    rows = (
                        read(spark, broker.name_server, columns, touch)
                        if name == "source"
                        else parquet(spark, folder, columns, touch)
                    )
                    took_s = time.perf_counter() - began
                    assert rows == given.messages, f"{rows} rows of {given.messages} messages"
                    if turn:
                        rates[name].append(rows / took_s)
                        costs[name].append((cpu_s(os.getpid()) - cpu_before) / rows * 1e6)
            source, files = median(rates["source"]), median(rates["parquet"])
            ours, theirs = median(costs["source"]), median(costs["parquet"])
            print(
                f"{columns_name:14} {touch:6}: source {source:9,.0f} rows/s, {ours:.2f} us of processor"
                f" a row; Parquet {files:9,.0f} rows/s, {theirs:.2f} us; ratio {source / files:.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=2)
    parser.add_argument("--body-bytes", type=int, default=128)
    parser.add_argument("--vary", action="store_true", help="bodies of half to one and a half times that size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stream", action="store_true")
    given = parser.parse_args()
    with BrokerProcess("--memory-limit", "4GiB") as broker, tempfile.TemporaryDirectory() as folder:
        print(f"sending {given.messages:,} messages of {given.body_bytes} B", flush=True)
        sizes = (given.body_bytes // 2, given.body_bytes * 3 // 2) if given.vary else (given.body_bytes,) * 2
        fill(broker.name_server, given.messages, given.queues, sizes)
        spark = spark_session("bench", master="local[2]", driver_memory="1g")
        try:
            topic = spark.read.format("lockstep").options(nameServer=broker.name_server, subscribe=TOPIC).load()
            topic.write.parquet(f"{folder}/rows")
            measure(spark, broker, f"{folder}/rows", given)
        finally:
            end_session(spark)


if __name__ == "__main__":
    main()
