"""The lag of a group: what it has not yet committed, a row a queue; what cannot be asked is a row that says so."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.client import AdminClient, Message, MessageQueue, Producer
from lockstep.client.blocking import Addresses
from lockstep.pipeline.cli import lag
from lockstep.pipeline.jobs.lag import Watched, lag_once, lag_stream, look, start
from tests.integration.harness.processes import PATIENT_CLIENT, PATIENT_PRODUCER
from tests.pipeline.conftest import Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 240
GROUP, TOPIC = "board", "orders"


def watched(name_server: str, *topics: str) -> Watched:
    return Watched(Addresses((name_server,), retries=0, timeout_ms=60_000), GROUP, topics or (TOPIC,))


async def filled(name_server: str) -> None:
    """Three messages in queue 0 of which the group has consumed one, and one in queue 1, where it has no offset."""
    async with (
        Producer("filling", name_server=name_server, config=PATIENT_PRODUCER) as producer,
        AdminClient(name_server=name_server, config=PATIENT_CLIENT) as admin,
    ):
        queues = (await admin.route(TOPIC)).readable_queues(TOPIC)
        for queue in (queues[0], queues[0], queues[0], queues[1]):
            await producer.send(Message(TOPIC, b"x"), queue=queue)
        await admin.update_consumer_offset(GROUP, MessageQueue(TOPIC, queues[0].broker_name, 0), 1)


def numbers(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """queue id, first, end, offset, lag, error"""
    return [row[4:] for row in rows]


def test_lag_is_what_is_not_committed(brokers: Brokers) -> None:
    """From the group's offset to the end; without one all that is stored, and a young queue's broker answers 0."""
    broker = brokers.start("--topic", f"{TOPIC}:2")
    asyncio.run(filled(broker.name_server))
    asked = watched(broker.name_server)
    with asked.addresses.open() as client:
        rows = list(look(client, asked, 1234))
    assert [row[:3] for row in rows] == [(1234, GROUP, TOPIC)] * 2
    assert numbers(rows) == [(0, 0, 3, 1, 2, None), (1, 0, 1, 0, 1, None)]


def test_what_cannot_be_asked_is_a_row(brokers: Brokers) -> None:
    """A topic that is not there, and a name server that is down: the text is in `error`, and nothing is raised."""
    broker = brokers.start("--topic", f"{TOPIC}:1")
    asked = watched(broker.name_server, TOPIC, "nowhere")
    with asked.addresses.open() as client:
        there, nowhere = look(client, asked, 0)
    assert there[-1] is None
    assert nowhere[2:9] == ("nowhere", *(None,) * 6)
    assert "no topic 'nowhere'" in nowhere[-1]
    brokers.stop(broker)
    with asked.addresses.open() as client:
        assert all("no name server answers" in row[-1] for row in look(client, asked, 0))


def test_a_stream_looks_again_and_again(spark: "SparkSession", brokers: Brokers, tmp_path: Path) -> None:
    """One look is a batch; the stream leaves its looks as Parquet, each with a later time."""
    broker = brokers.start("--topic", f"{TOPIC}:2")
    asked = watched(broker.name_server)
    assert [row["lag"] for row in lag_once(spark, asked).collect()] == [0, 0]
    folder = str(tmp_path / "lag")
    query = start(lag_stream(spark, asked), every_ms=200, folder=folder, checkpoint=str(tmp_path / "checkpoint"))
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (len(query.recentProgress) > 2 or query.awaitTermination(1)) and time.monotonic() < deadline:
            pass
    finally:
        query.stop()
    rows = spark.read.parquet(folder).collect()
    times = {row["at_ms"] for row in rows}
    assert len(times) > 2
    assert len(rows) == 2 * len(times)
    assert {(row["topic"], row["queue_id"], row["error"]) for row in rows} == {(TOPIC, 0, None), (TOPIC, 1, None)}


def test_half_a_millisecond_is_waited_for(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of --for: Spark refuses to wait for 0 ms, and `lag` ended with status 1."""
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    now_s = iter([0.0, 0.9995, 1.0])
    monkeypatch.setattr(lag, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    try:
        lag.wait(query, 1000, printed=False)
        assert list(now_s) == []
    finally:
        query.stop()
