"""TLS over localhost sockets: each mode of a broker, its clients, and certificates that nobody should accept."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from lockstep.client import (
    AdminClient,
    ClientError,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.tls.options import TlsOptions
from lockstep.testing.process import BrokerFailed
from tests.commands import ForkedBroker
from tests.integration.harness.certificates import Files, make_files
from tests.integration.harness.processes import PATIENCE, PATIENT_CLIENT, PATIENT_PRODUCER

TOPIC = "orders"
LARGE = os.urandom(3_000_000)  # several reads and writes, and a write buffer that fills


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=["permissive", "enforcing"])
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def broker(mode: str, files: Files) -> Iterator[ForkedBroker]:
    with ForkedBroker("--topic", f"{TOPIC}:2", "--tls", mode, "--tls-cert", files.server) as running:
        yield running


async def logged(broker: ForkedBroker, event: str, times: int = 1) -> None:
    """Wait until the broker has logged it so often."""
    async with asyncio.timeout(60 * PATIENCE):
        while broker.stderr().count(event) < times:  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.1)


def admin_of(broker: ForkedBroker, tls: TlsOptions | bool | None = None) -> AdminClient:
    return AdminClient(name_server=broker.name_server, config=PATIENT_CLIENT, tls=tls)


async def accepted(broker: ForkedBroker, ca: str) -> bool:
    """Whether a client that trusts `ca` is served."""
    try:
        async with admin_of(broker, TlsOptions(ca=ca)) as admin:
            await admin.topics()
    except (ClientError, RemotingError):
        return False
    return True


async def handled(name_server: str, tls: TlsOptions | bool | None, bodies: list[bytes]) -> list[bytes]:
    """Send the bodies to one queue, and consume them in order."""
    got: list[bytes] = []
    done = asyncio.Event()

    async def listener(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
        got.extend(message.body for message in messages)
        if len(got) >= len(bodies):
            done.set()

    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with Producer("senders", name_server=name_server, config=PATIENT_PRODUCER, tls=tls) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body, sharding_key="one"))
        consumer = PushConsumer("shop", name_server=name_server, config=config, listener=listener, tls=tls)
        consumer.subscribe(TOPIC)
        async with consumer:
            await asyncio.wait_for(done.wait(), 30 * PATIENCE)
    return got


async def test_messages_arrive_in_order_over_tls(broker: ForkedBroker, files: Files) -> None:
    """Small bodies and one of 3 MB, to broker and name server, with the certificate checked."""
    bodies = [b"%d" % i for i in range(50)] + [LARGE, b"last"]
    assert await handled(broker.name_server, TlsOptions(ca=files.ca), bodies) == bodies


async def test_a_plain_client_is_served_only_where_it_is_allowed(broker: ForkedBroker, mode: str) -> None:
    """Permissive: as without TLS. Enforcing: the connection ends, and one line of the log says why."""
    if mode == "permissive":
        assert await handled(broker.name_server, None, [b"plain"]) == [b"plain"]
        return
    async with admin_of(broker) as admin:
        with pytest.raises((ClientError, RemotingError), match="perhaps it wants TLS"):
            await admin.topics()
    await logged(broker, "tls_required")


@pytest.mark.parametrize(
    ("tls", "reason"),
    [("other_ca", "the certificate is not accepted"), (None, "the certificate is not accepted")],
    ids=["another signer", "the system's signers"],
)
async def test_a_server_that_the_client_does_not_trust_is_refused(
    broker: ForkedBroker, files: Files, tls: str | None, reason: str
) -> None:
    """The error names the cause, and the broker logs the peer's alert."""
    options = TlsOptions(ca=getattr(files, tls)) if tls else True
    async with admin_of(broker, options) as admin:
        with pytest.raises((ClientError, RemotingError), match=reason):
            await admin.topics()
    await logged(broker, "tls_handshake_failed")


async def test_a_client_that_verifies_nothing_is_served(broker: ForkedBroker) -> None:
    """As Java's client, which accepts any certificate by default."""
    assert await handled(broker.name_server, TlsOptions(verify=False), [b"x"]) == [b"x"]


@pytest.mark.long
async def test_a_plain_broker_tells_a_tls_client(tmp_path: Path) -> None:
    """The client says that the peer perhaps does not speak TLS."""
    with ForkedBroker() as broker:
        async with admin_of(broker, True) as admin:
            with pytest.raises((ClientError, RemotingError), match="TLS"):
                await admin.topics()


@pytest.mark.long
async def test_a_client_shows_its_certificate(files: Files) -> None:
    """With --tls-client-ca a client without a certificate, or with none that counts, is refused; another is served."""
    options = ("--topic", f"{TOPIC}:2", "--tls", "enforcing", "--tls-cert", files.server, "--tls-client-ca", files.ca)
    with ForkedBroker(*options) as broker:
        with_it = TlsOptions(ca=files.ca, cert=files.client)
        assert await handled(broker.name_server, with_it, [b"x"]) == [b"x"]
        async with admin_of(broker, TlsOptions(ca=files.ca)) as admin:
            with pytest.raises((ClientError, RemotingError), match=r"TLS: .*certificate required"):
                await admin.topics()


@pytest.mark.long
async def test_a_new_certificate_is_read_without_a_restart(tmp_path: Path, files: Files) -> None:
    """Connections stay; new ones see the new certificate. A file that is no certificate changes nothing."""
    served, other = tmp_path / "served.pem", trustme.CA()
    shutil.copy(files.server, served)
    new_ca = tmp_path / "new-ca.pem"
    other.cert_pem.write_to_path(str(new_ca))

    with ForkedBroker("--tls", "permissive", "--tls-cert", str(served)) as broker:
        assert await accepted(broker, files.ca)
        served.write_text("no certificate", encoding="utf-8")
        await logged(broker, "tls_reload_failed")
        assert await accepted(broker, files.ca)
        other.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(served))
        await logged(broker, "tls_reloaded")
        assert await accepted(broker, str(new_ca))
        assert not await accepted(broker, files.ca)


@pytest.mark.long
async def test_a_certificate_for_tests_is_made_and_kept(tmp_path: Path) -> None:
    """--tls test: clients that trust its ca.pem are served, after a restart too; its key is for the owner alone."""
    data = tmp_path / "data"
    ca = data / "config" / "tls" / "ca.pem"
    for _ in range(2):
        with ForkedBroker("--tls", "test", "--data-dir", str(data), "--topic", f"{TOPIC}:1") as broker:
            first = ca.read_bytes()
            async with admin_of(broker, TlsOptions(ca=str(ca))) as admin:
                assert TOPIC in await admin.topics()
    assert ca.read_bytes() == first
    assert (data / "config" / "tls" / "server.pem").stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_broker_that_cannot_read_its_certificate_says_so() -> None:
    """One line, and no broker."""
    options = ("--tls", "enforcing", "--tls-cert", "/nowhere/x.pem")
    with pytest.raises(BrokerFailed, match="No such file"), ForkedBroker(*options):
        pass


async def test_garbage_and_silence_on_a_tls_port_end(broker: ForkedBroker, mode: str, files: Files) -> None:
    """A handshake that is none, and one that ends half-way, are logged; the broker serves on."""
    host, port = broker.name_server.split(":")
    for data in (b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff", b"\x16"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(20 * PATIENCE):
            await reader.read()
        writer.close()
    await logged(broker, "tls_handshake_failed", 3)
    assert await handled(broker.name_server, TlsOptions(ca=files.ca), [b"x"]) == [b"x"]
