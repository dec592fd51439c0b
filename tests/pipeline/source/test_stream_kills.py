"""A streaming query that is killed, and a broker that starts again: every offset once."""

import asyncio
import os
import random
import re
import signal
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.harness.processes import Process, until
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import Topic

PROGRAM = Path(__file__).with_name("stream_program.py")
KILLS = 2
STEP = 1_300  # messages of each queue that are sent at once: before the first query, and beside each that is killed
QUEUES = 2
TOTAL = QUEUES * STEP * (KILLS + 1)
BATCH = re.compile(r"batch (\d+)\n")


@pytest.mark.timeout(900)
def test_every_offset_comes_once(brokers: Brokers, java: str, tmp_path: Path) -> None:
    """A query killed at random points while its topic grows, and a broker with a file store killed in between.

    Restarted on its checkpoint the query reads on; all batches together hold each offset of each queue once.
    """
    rng = random.Random(20)
    data = ("--data-dir", str(tmp_path / "store"), "--flush", "sync")
    broker = brokers.start(*data)
    topic = Topic.create(broker, "growing")
    topic.fill(*[STEP] * QUEUES)
    for kill in range(KILLS):
        query = brokers.processes.program("query", *arguments(topic, tmp_path))
        seen = wait_for_batches(query, 1)
        if kill == 1:
            brokers.kill(broker)
            broker = brokers.restart(broker, *data)
            topic = Topic(broker, topic.name)
        topic.fill(*[STEP] * QUEUES, first=STEP * (kill + 1))
        wait_for_batches(query, seen + rng.randint(1, 3))
        kill_group(query)
    query = brokers.processes.program("query", *arguments(topic, tmp_path))
    assert asyncio.run(query.ended(120)) == 0, query.stderr()[-3000:]

    table = pq.read_table(str(tmp_path / "batches"), columns=["queueId", "offset", "value"]).to_pylist()
    found = Counter((row["queueId"], row["offset"]) for row in table)
    assert max(found.values()) == 1
    assert sorted(found) == [(queue_id, offset) for queue_id in range(QUEUES) for offset in range(TOTAL // QUEUES)]
    assert all(row["value"] == f"{row['queueId']}:{row['offset']}".encode() for row in table)


def arguments(topic: Topic, folder: Path) -> list[str]:
    return [str(PROGRAM), topic.broker.name_server, topic.name, str(folder), str(TOTAL)]


def wait_for_batches(query: Process, count: int) -> int:
    """How many micro-batches it has finished, once they are so many."""

    def finished() -> int:
        assert query.status is None, query.stderr()[-3000:]
        found = len(BATCH.findall(query.stdout()))
        return found if found >= count else 0

    return asyncio.run(until(finished, f"{count} micro-batches", 100))


def kill_group(query: Process) -> None:
    """SIGKILL for the driver and its JVM at once: the program leads a group of its own."""
    os.killpg(query.pid, signal.SIGKILL)
    assert asyncio.run(query.ended()) == -signal.SIGKILL
