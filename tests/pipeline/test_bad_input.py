"""What is wrong ends a read of Spark with one clear text, soon, and never hangs."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.protocol.codes import RequestCode, ResponseCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2
from tests.integration.harness.ports import free_port
from tests.pipeline.topics import BORN_MS, Topic

QUICK = {  # where nobody answers
    "pullTimeoutMs": "500",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}
SOON_S = 120.0  # of a busy machine; QUICK allows about a second of it


def error_of(spark: SparkSession, **options: str) -> str:
    began = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        spark.read.format("lockstep").options(**options).load().collect()
    assert time.monotonic() - began < SOON_S
    return str(caught.value)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never says a word."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in accepted:
        connection.close()


def test_what_cannot_be_is_refused(spark: SparkSession, topic: Topic) -> None:
    """An unknown option, offsets that are no JSON, queues that are left out or are not there, no such topic."""
    told = {
        "unknown option fetchsize; allowed for read: nameServer": {"fetchSize": "7"},
        "option startingOffsets: 'tomorrow' cannot be: it is no JSON": {"startingOffsets": "tomorrow"},
        f"it lacks {topic.queue(1)}": {"startingOffsets": f'{{"{topic.name}":{{"broker-a":{{"0":0}}}}}}'},
        "no topic 'nowhere'": {"subscribe": "nowhere"},
    }
    for said, options in told.items():
        text = error_of(spark, **{**topic.options, **options})
        assert said in text, text
    text = error_of(spark, nameServer=topic.broker.name_server, assign=f'{{"{topic.name}":[9]}}')
    assert f"there is no queue {topic.name}@(any broker):9; there are {topic.queue(0)}" in text


def test_a_message_that_cannot_be_read_is_told(spark: SparkSession, topic: Topic) -> None:
    """In a column: here a flag says zlib, and the body is none. The messages around it are read."""
    topic.fill(2)
    with topic.client() as client:
        ticket = client.start(topic.queue(0), said_to_be_zlib(topic, b"no zlib"))
        assert client.finish(ticket).code == ResponseCode.SUCCESS
    topic.fill(2, first=2)
    rows = (
        spark.read.format("lockstep").options(**topic.options).load().where("queueId = 0").orderBy("offset").collect()
    )
    errors = [row.bodyError for row in rows]
    assert errors == [None, None, errors[2], None, None]
    assert "a body flagged as compressed is not zlib" in errors[2]
    assert bytes(rows[2].value) == b"no zlib"


def said_to_be_zlib(topic: Topic, body: bytes) -> RemotingCommand:
    numbers = (4, 0, SysFlag.COMPRESSED, BORN_MS, 0)
    header = SendMessageRequestHeaderV2("producers", topic.name, "TBW102", *numbers, "")
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, header, body)


def test_a_name_server_that_is_down_is_told(spark: SparkSession) -> None:
    """With its address, and how it failed."""
    address = f"127.0.0.1:{free_port()}"
    text = error_of(spark, nameServer=address, subscribe="t", **QUICK)
    assert f"no name server answers (cannot connect to {address}" in text


def test_a_name_server_that_is_silent_is_told(spark: SparkSession, silent_port: int) -> None:
    """After pullTimeoutMs, as often as it is retried."""
    text = error_of(spark, nameServer=f"127.0.0.1:{silent_port}", subscribe="t", **QUICK)
    assert f"from 127.0.0.1:{silent_port} within 500 ms" in text
