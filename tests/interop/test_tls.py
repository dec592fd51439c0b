"""TLS with the other side unmodified: Java's client on our broker, our client on Apache's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Message, Producer
from lockstep.remoting.tls.options import TlsOptions
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(300)
MESSAGES = 40
TLS = {"tls.enable": "true"}  # Java's client believes any server by default


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    """Our broker, which serves TLS alone, with a certificate that it made."""
    data = tmp_path / "data"
    with lockstep_server(tmp_path, "--tls", "test", "--data-dir", str(data)) as maker:
        assert not maker.is_apache
    cert = str(data / "config" / "tls" / "server.pem")
    with lockstep_server(tmp_path, "--tls", "enforcing", "--tls-cert", cert, "--topic", "orders:4") as server:
        yield server


async def test_java_over_tls(broker: Server, drivers: Drivers, interop_row: RowMaker) -> None:
    """An ordered producer and an ordered consumer with -Dtls.enable=true; without it Java's producer fails."""
    row = interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", "TLS: ordered")
    fixed: dict[str, Any] = {"name_server": broker.name_server, "topic": "orders"}
    producer = drivers.java("OrderedProducer", properties=TLS, **fixed, messages=MESSAGES, keys=4)
    assert await producer.ended(60) == 0, producer.tail()
    consumer = drivers.java("OrderlyConsumer", properties=TLS, **fixed, group="workers")
    await consumer.until(lambda: len(consumer.of("handled")) >= MESSAGES, "all messages are handled", 60)
    assert {event["seq"] for event in consumer.of("handled")} == set(range(MESSAGES))
    plain = drivers.java("OrderedProducer", **fixed, messages=1, keys=1)
    assert await plain.ended(60) != 0
    row.messages = MESSAGES


async def test_our_producer_over_tls_to_apache(apache: Server, interop_row: RowMaker) -> None:
    """Apache's servers speak TLS on their ports, with a certificate that they make themselves."""
    row = interop_row("Python", "0.1.0", "Lockstep -> Apache", "TLS: sends")
    topic = await apache.create_topic("over-tls", 2)
    async with Producer("tls", name_server=apache.name_server, tls=TlsOptions(verify=False)) as producer:
        results = [await producer.send(Message(topic, b"%d" % i), sharding_key="one") for i in range(10)]
    assert [result.queue_offset for result in results] == list(range(10))
    row.messages = 10
