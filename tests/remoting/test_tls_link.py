"""TLS below a protocol, without sockets: the end of a session, and the bound of handshakes."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from lockstep.remoting.tls.link import TlsLink
from lockstep.remoting.tls.options import ServerTlsFiles, TlsOptions, client_context, server_context
from lockstep.remoting.tls.port import TlsPort
from lockstep.remoting.tls.session import TlsSession
from tests.remoting.helpers import RecordingLog, SteppedRuntime


class Below(asyncio.Transport):
    """A transport whose peer is the test."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4711)})
        self.sent = bytearray()
        self.ended = False
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol


class Inner(asyncio.Protocol):
    """Pauses after each read."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.pause_reading()
        self.seen.append(data)

    def eof_received(self) -> None:
        self.seen.append(b"end")


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a client."""
    folder: Path = tmp_path_factory.mktemp("tls")
    trustme.CA().issue_cert("broker").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    return server_context(ServerTlsFiles(str(folder / "server.pem"))), client_context(TlsOptions(verify=False))


async def test_the_end_of_a_session_waits_for_a_pause(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """As on a plain connection: what a peer sent before its end is handled, also when its end came in the same read."""
    runtime, below, inner = SteppedRuntime(), Below(), Inner()
    link = TlsLink(runtime, inner, contexts[0], server=True)
    peer = TlsSession(contexts[1], server=False)
    link.connection_made(below)
    while not peer.shake_hands() or inner.transport is None:
        link.data_received(peer.outgoing())
        peer.receive(bytes(below.sent))
        below.sent.clear()
        if peer.is_open:
            link.data_received(peer.outgoing())
            break
    assert inner.transport is not None

    peer.write(b"requests")
    peer.end()
    link.data_received(peer.outgoing())
    assert inner.seen == [b"requests"]
    assert not below.ended, "the requests that wait for the turn of their connection would be lost"

    inner.transport.resume_reading()
    runtime.advance(0)
    assert inner.seen == [b"requests", b"end"]
    assert below.ended


async def test_handshakes_under_way_have_a_bound(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """They are not connections yet, so `connections_max` does not count them; the oldest ends. `close` ends all."""
    port = TlsPort(SteppedRuntime(), lambda: contexts[0], RecordingLog(), plain_allowed=True, handshakes_max=5)
    factory = port.wrap(Inner)
    belows = []
    for _ in range(8):
        below, first = Below(), factory()
        belows.append(below)
        first.connection_made(below)
        first.data_received(b"\x16")
    assert [below.ended for below in belows] == [True] * 3 + [False] * 5
    port.close()
    assert all(below.ended for below in belows)
