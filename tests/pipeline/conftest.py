"""What tests on Spark share: one session of Spark a process, brokers in processes of their own.

A JVM takes seconds to start and most of a processor, so these tests run in one worker (tests/conftest.py).
"""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.pipeline.spark.java import JavaMissing, find_java
from lockstep.pipeline.spark.session import end_session, spark_session, worker_environment
from tests.integration.harness.processes import Broker, Process, Processes
from tests.pipeline.topics import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_SPARK = frozenset({"spark", "spark_process", "java"})
SPARK_TIMEOUT_S = 900
"""For a machine with too much to do: a test that is cut off amid a question leaves the JVM of all others unusable."""
SPARK_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    # Of small data most of the work would be the second compiler's, which pays off after minutes.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Spark may take long."""
    for item in items:
        if NEEDS_SPARK & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def java() -> str:
    """The Java that Spark will use; without one the test is skipped, and in CI it fails."""
    try:
        return str(find_java())
    except JavaMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """The environment of a process of its own that starts Spark."""
    return {**os.environ, **worker_environment(os.environ), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """local[2], one a process. Nothing of it is kept: warehouse and scratch files are in a temporary folder."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **SPARK_SETTINGS,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in worker_environment(os.environ).items():
            patch.setenv(name, value)
        session = spark_session("lockstep tests", master="local[2]", driver_memory="1g", settings=settings)
    # The JVM has its environment now. Other tests of this process begin without it.
    yield session
    end_session(session)


class Brokers:
    """Brokers for tests that are not async: `start`, `restart`."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def start(self, *options: str) -> Broker:
        """With its own name server, on free ports; it listens."""
        return asyncio.run(self.processes.broker(*options))

    def stop(self, broker: Process) -> None:
        """SIGTERM, and wait for its end."""
        asyncio.run(broker.stop())

    def kill(self, broker: Process) -> None:
        """SIGKILL, and wait for its end."""
        broker.kill()

    def restart(self, broker: Broker, *options: str) -> Broker:
        """Another on the ports of one that has ended."""
        return asyncio.run(self.processes.broker(*options, like=broker))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker in memory that a whole module shares; topics of tests have names of their own."""
    with Processes(tmp_path_factory.mktemp("broker")) as started:
        yield Brokers(started).start()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Topic:
    """An empty topic of two queues, of this test alone, on `broker`."""
    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:80].strip("-")
    return Topic.create(broker, name)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Starts brokers; all are ended after the test, and shown if it failed."""
    folder = tmp_path / "processes"
    folder.mkdir()
    with Processes(folder) as started:
        yield Brokers(started)
