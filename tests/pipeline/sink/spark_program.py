"""A program with a Spark of its own, for what the session of the tests cannot have: `spark_program.py STORY JSON`.

The last line of stdout is the story's answer as JSON.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from lockstep.client.blocking import Addresses
from lockstep.pipeline.audit import read_traces, transform
from lockstep.pipeline.sink.dedup import drop_repeats
from lockstep.pipeline.sink.ordering import ordered
from lockstep.remoting.errors import RemotingError
from tests.pipeline.audit.made_traces import Shape, topic_rows, write_traces

DEADLINE_S = 240


def session(spec: dict[str, Any]) -> SparkSession:
    builder: Any = SparkSession.builder
    for name, value in spec["settings"].items():
        builder = builder.config(name, value)
    found: SparkSession = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def fails_once(df: DataFrame, name_server: str, topic: str, rows: int) -> DataFrame:
    """The first attempt of each task that has row 3000 or 3001 waits there until the topic has `rows`, and fails."""

    def stored() -> int:
        try:
            with Addresses((name_server,), timeout_ms=30_000).open() as client:
                return sum(map(client.max_offset, client.readable_queues(topic)))
        except RemotingError:
            return 0

    async def wait() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while stored() < rows and time.monotonic() < deadline:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.05)

    def give(value: str) -> str:
        context = TaskContext.get()
        assert context is not None
        if int(value) in (3000, 3001) and context.attemptNumber() == 0:
            asyncio.run(wait())
            raise RuntimeError(f"on purpose, with {stored()} messages in {topic}")
        return value

    return df.withColumn("value", F.udf(give, "string", useArrow=False)("value"))


def keyed(spark: SparkSession, rows: int) -> DataFrame:
    """Values are long, so that few fit a buffer between processes."""
    return spark.range(rows).selectExpr("concat('key-', id % 23) key", "lpad(id, 500, '0') value", "id seq")


def write(df: DataFrame, spec: dict[str, Any]) -> None:
    writer = df.write.format("lockstep").mode("append").option("nameServer", spec["name_server"])
    writer.options(topic=spec["topic"], orderBy="seq", sendBatchSize="100").save()


def read(spark: SparkSession, spec: dict[str, Any]) -> DataFrame:
    reader = spark.read.format("lockstep").option("nameServer", spec["name_server"]).option("topic", spec["topic"])
    return reader.option("includeProperties", "true").load()


def retried(spark: SparkSession, spec: dict[str, Any]) -> dict[str, Any]:
    """Every task fails once in the middle; then the topic as it is, and without its repeats."""
    rows = ordered(keyed(spark, 4000), "key", "seq", 2)
    write(fails_once(rows, spec["name_server"], spec["topic"], 500), spec)
    read_back = read(spark, spec)
    kept = drop_repeats(read_back).selectExpr("queueId", "offset", "cast(value as string) value")
    return {"stored": read_back.count(), "kept": [list(row) for row in kept.orderBy("queueId", "offset").collect()]}


def refused(spark: SparkSession, spec: dict[str, Any]) -> str:
    """What a user is told when the write cannot be."""
    try:
        write(ordered(keyed(spark, 10), "key", "seq", 1), spec)
    except Exception as error:
        return str(error)
    return "it was not refused"


def round_trip(spark: SparkSession, spec: dict[str, Any]) -> dict[str, Any]:
    """Written, read and streamed in executors' own processes."""
    write(ordered(keyed(spark, 4000), "key", "seq", 4), spec)
    processes = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getppid()).distinct().collect()
    values = [row[0] for row in read(spark, spec).selectExpr("cast(value as string)").collect()]
    stream = spark.readStream.format("lockstep").option("nameServer", spec["name_server"])
    rows = stream.option("subscribe", spec["topic"]).option("startingOffsets", "earliest").load()
    copy = ordered(rows.select("key", "value", "offset"), "key", "offset", 2)
    writer = copy.writeStream.format("lockstep").option("checkpointLocation", spec["checkpoint"])
    writer = writer.option("nameServer", spec["name_server"]).option("topic", spec["topic"] + "-copy")
    query = writer.option("orderBy", "offset").trigger(availableNow=True).start()
    query.awaitTermination(DEADLINE_S)
    copied = read(spark, {**spec, "topic": spec["topic"] + "-copy"})
    return {"processes": len(processes), "read": sorted(map(int, values)), "copied": copied.count()}


def audited(spark: SparkSession, spec: dict[str, Any]) -> dict[str, Any]:
    """Generated traces judged in executors' own processes."""
    shape = Shape(3000, queues=3, consumers=4, hosts=1, keys=5, takeover_every=400, commit_every=50, repeated=20)
    traces = spec["checkpoint"] + "/traces"
    write_traces(spark, shape, traces)
    with transform(read_traces(spark, traces), topic_rows(spark, shape)) as tables:
        (row,) = tables["summary"].collect()
        found: dict[str, Any] = row.asDict()
    return found


STORIES = {"retried": retried, "refused": refused, "round_trip": round_trip, "audited": audited}


def main() -> None:
    spec = json.loads(sys.argv[2])
    spark = session(spec)
    try:
        answer = STORIES[sys.argv[1]](spark, spec)
    finally:
        spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
