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

# What differs from loop to loop is proved on both.
pytestmark = pytest.mark.each_loop


class Below(asyncio.Transport):
    """A transport whose peer is the test."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4711)})
        self.sent = bytearray()
        self.sizes: list[int] = []
        self.ended = False
        self.protocol: asyncio.Protocol | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        self.sizes.append(len(data))

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return 0

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
        self.writing: list[str] = []
        self.lost: list[str] = []
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

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(str(exc))

    def pause_writing(self) -> None:
        self.writing.append("paused")

    def resume_writing(self) -> None:
        self.writing.append("resumed")


class Opened:
    """A server's link whose handshake is done, and its peer."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        self.runtime, self.below, self.inner = SteppedRuntime(), Below(), Inner()
        self.link = TlsLink(self.runtime, self.inner, contexts[0], server=True)
        self.peer = TlsSession(contexts[1], server=False)
        self.link.connection_made(self.below)
        while not self.peer.shake_hands():
            self.link.data_received(self.peer.outgoing())
            self.peer.receive(bytes(self.below.sent))
            self.below.sent.clear()
        self.link.data_received(self.peer.outgoing())
        assert self.inner.transport is not None
        self.above = self.inner.transport

    def received(self) -> bytes:
        """What the peer reads of what was sent."""
        self.peer.receive(bytes(self.below.sent))
        self.below.sent.clear()
        return self.peer.read(1 << 30)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a client."""
    folder: Path = tmp_path_factory.mktemp("tls")
    trustme.CA().issue_cert("broker").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    return server_context(ServerTlsFiles(str(folder / "server.pem"))), client_context(TlsOptions(verify=False))


async def test_the_end_of_a_session_waits_for_a_pause(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """As on a plain connection: what a peer sent before its end is handled, also when its end came in the same read."""
    opened = Opened(contexts)
    opened.peer.write(b"requests")
    opened.peer.end()
    opened.link.data_received(opened.peer.outgoing())
    assert opened.inner.seen == [b"requests"]
    assert not opened.below.ended, "the requests that wait for the turn of their connection would be lost"

    opened.above.resume_reading()
    opened.runtime.advance(0)
    assert opened.inner.seen == [b"requests", b"end"]
    assert opened.below.ended


async def test_a_long_answer_is_encrypted_in_parts(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """One in each turn of the loop. What is written after it comes after it, and `inner` may see it as not sent."""
    opened = Opened(contexts)
    long = bytes(range(256)) * 20_000
    opened.below.sizes.clear()
    opened.above.writelines([b"head", long])
    opened.above.write(b"tail")
    assert (len(opened.below.sizes), opened.inner.writing) == (1, ["paused"])
    assert opened.above.get_write_buffer_size() > 4_000_000
    (part,) = opened.runtime.live_timers()
    opened.runtime.timers.clear()
    part.callback()
    assert len(opened.below.sizes) == 2
    opened.runtime.advance(0)
    assert opened.received() == b"head" + long + b"tail"
    assert (len(opened.below.sizes), opened.inner.writing) == (5, ["paused", "resumed"])
    assert max(opened.below.sizes) < 1_100_000


async def test_a_full_transport_is_given_no_more(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A peer that does not read costs no encryption; when it reads again, all comes in order."""
    opened = Opened(contexts)
    opened.link.pause_writing()
    opened.above.write(b"one")
    opened.above.writelines([b"two", b"three"])
    opened.runtime.advance(0)
    assert opened.received() == b""
    assert opened.above.get_write_buffer_size() == 11
    opened.link.resume_writing()
    assert opened.received() == b"onetwothree"
    assert opened.inner.writing == ["paused", "resumed"]


@pytest.mark.parametrize("how", ["closed by this end", "ended by the peer's socket"])
async def test_an_orderly_end_comes_after_what_waits(how: str, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """As on a plain connection, which closes when its buffer is sent. What is written after the end is dropped."""
    opened = Opened(contexts)
    opened.above.write(bytes(3_000_000))
    if how == "closed by this end":
        opened.above.close()
    else:
        assert opened.link.eof_received(), "the transport would close itself at once"
    assert opened.above.is_closing()
    assert not opened.below.is_closing()
    opened.above.write(b"too late")
    opened.runtime.advance(0)
    opened.runtime.advance(0)
    assert opened.below.ended
    assert opened.received() == bytes(3_000_000)
    assert opened.peer.is_ended


async def test_what_arrives_after_the_end_is_not_kept(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that sends on and does not read would fill the memory while its last answer waits."""
    opened, kept = Opened(contexts), list[bytes]()
    opened.link.pause_writing()
    opened.above.write(b"answer")
    opened.above.close()
    opened.peer.write(b"more")
    monkeypatch.setattr(TlsSession, "receive", lambda _, data: kept.append(data))
    opened.link.data_received(opened.peer.outgoing())
    assert (kept, opened.inner.seen) == ([], [])


async def test_an_abort_drops_what_waits(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Nothing is encrypted any more."""
    opened = Opened(contexts)
    opened.above.write(bytes(3_000_000))
    opened.above.abort()
    sent = len(opened.below.sent)
    opened.runtime.advance(0)
    opened.link.connection_lost(None)
    assert len(opened.below.sent) == sent
    assert opened.above.get_write_buffer_size() == 0


async def test_the_reason_comes_with_the_end_of_a_session(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """A request that begins before the transport is gone says it too: an alert may come right after the handshake."""
    opened = Opened(contexts)
    opened.link.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert opened.below.ended
    assert opened.inner.lost == ["TLS: decryption failed or bad record mac"]
    opened.link.connection_lost(None)
    assert len(opened.inner.lost) == 1


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
