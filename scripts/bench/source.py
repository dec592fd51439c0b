"""How fast Spark reads a topic: rows a second of 128 B bodies, from a broker process, on local[2].

    python -m scripts.bench.source [--messages 2000000] [--queues 2] [--body-bytes 128] [--runs 3] [--stream]

The first run is cold (JVM and workers start). A figure is of the whole query with its planning. With --stream a stream
reads the topic in one micro-batch. Columns: all, then only offset and value.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.client import AdminClient
from lockstep.pipeline.client.blocking import Addresses
from lockstep.pipeline.spark.session import end_session, spark_session
from lockstep.pipeline.spark.streams import stream_progress
from lockstep.protocol.batch import BatchRecord
from lockstep.testing.process import BrokerProcess

TOPIC = "bench"
BATCH = 1_000
SCHEMAS = {"all columns": None, "offset, value": "offset bigint, value binary"}
TOUCH = ("count(1) rows", "sum(length(value)) bytes", "max(offset) top")


async def create(name_server: str, queues: int) -> None:
    async with AdminClient(name_server=name_server) as admin:
        await admin.create_topic(TOPIC, queues)


def fill(name_server: str, messages: int, queues: int, body_bytes: int) -> None:
    """Send batches with a tag, one of 1,000 keys and a UNIQ_KEY for each message."""
    asyncio.run(create(name_server, queues))
    texts = [f"TAGS\x01A\x02__SHARDINGKEY\x01key-{i:03}\x02UNIQ_KEY\x01{i:032}" for i in range(BATCH)]
    records = [BatchRecord(0, os.urandom(body_bytes), text) for text in texts]
    with Addresses((name_server,)).open() as client:
        for i, queue in enumerate(client.writable_queues(TOPIC)):
            left = messages // queues + (i < messages % queues)
            while left > 0:
                client.send_batch(queue, records[:left], 1_700_000_000_000)
                left -= BATCH


def batch(spark: Any, name_server: str, schema: str | None) -> int:
    reader = spark.read.format("lockstep").options(nameServer=name_server, subscribe=TOPIC)
    frame = (reader.schema(schema) if schema else reader).load()
    return int(frame.selectExpr(*TOUCH).collect()[0].rows)


def stream(spark: Any, name_server: str, schema: str | None) -> int:
    options = {"nameServer": name_server, "subscribe": TOPIC, "startingOffsets": "earliest"}
    reader = spark.readStream.format("lockstep").options(**options)
    frame = (reader.schema(schema) if schema else reader).load()
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.foreachBatch(
            lambda part, _: counts.append(part.selectExpr(*TOUCH).collect()[0].rows)
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


def measure(read: Callable[..., int], spark: Any, broker: BrokerProcess, given: argparse.Namespace) -> None:
    for name, schema in SCHEMAS.items():
        for run in range(given.runs):
            began, all_before, broker_before = time.perf_counter(), cpu_s(os.getpid()), cpu_s(broker.pid)
            rows = read(spark, broker.name_server, schema)
            took_s = time.perf_counter() - began
            assert rows == given.messages, f"{rows} rows of {given.messages} messages"
            all_us = (cpu_s(os.getpid()) - all_before) / rows * 1e6
            broker_us = (cpu_s(broker.pid) - broker_before) / rows * 1e6
            print(
                f"{name:14} run {run + 1}: {rows / took_s:9,.0f} rows/s in {took_s:5.2f} s; processor time a row:"
                f" {all_us:.2f} us, of it the broker {broker_us:.2f} us",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=2)
    parser.add_argument("--body-bytes", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--stream", action="store_true")
    given = parser.parse_args()
    with BrokerProcess("--memory-limit", "4GiB") as broker:
        print(f"sending {given.messages:,} messages of {given.body_bytes} B", flush=True)
        fill(broker.name_server, given.messages, given.queues, given.body_bytes)
        spark = spark_session("bench", master="local[2]", driver_memory="1g")
        try:
            measure(stream if given.stream else batch, spark, broker, given)
        finally:
            end_session(spark)


if __name__ == "__main__":
    main()
