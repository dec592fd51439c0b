"""The peers of a server under attack: plain connections, and TLS sessions over the same transport."""

import ssl
from functools import cache
from pathlib import Path

import trustme

from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.remoting.tls.options import TlsOptions, client_context
from lockstep.remoting.tls.session import TlsError, TlsSession
from tests.fuzz.frames.runtime import FakeTransport, FuzzRuntime

__all__ = ["HOST", "Peer", "certificates", "trusting"]

HOST = "127.0.0.1"
_READ_BYTES = 1 << 30  # all that is there


@cache
def certificates(folder: Path) -> tuple[str, str]:
    """The files of a certificate for `HOST` and of what signs it."""
    signer = trustme.CA()
    server, ca = str(folder / "server.pem"), str(folder / "ca.pem")
    signer.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(server)
    signer.cert_pem.write_to_path(ca)
    return server, ca


@cache
def trusting(ca: str) -> ssl.SSLContext:
    return client_context(TlsOptions(ca=ca))


class Peer:
    """One connection, and what is expected on it.

    Args:
        number: Of the connection; also its port.
        persona: What it may do: a word of `oracle.py`.
        at_name_server: It talks to the name server.
        tls: The client's context; None: plain.

    Attributes:
        outstanding: The codes of requests that wait for an answer, by opaque.
        asked: The opaques of requests of the broker that this peer may answer.
        outside: What it sends must reach no handler: it is not in a TLS session, or its session is broken.
        received: The raw bytes of answers that are not looked at yet.
    """

    def __init__(
        self,
        runtime: FuzzRuntime,
        number: int,
        persona: str,
        *,
        at_name_server: bool,
        tls: ssl.SSLContext | None,
        stuck: bool = False,
    ) -> None:
        self.address = ("10.9.0.9", number)
        self.persona = persona
        self.at_name_server = at_name_server
        self.stuck = stuck
        self.outstanding: dict[int, list[int]] = {}
        self.asked: list[int] = []
        self.outside = False
        self.transport = FakeTransport(runtime, self.address, stuck=stuck)
        self.session = TlsSession(tls, server=False, host=HOST) if tls is not None else None
        self._runtime = runtime
        self._decoder = FrameDecoder()

    @property
    def key(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def connect(self, port: int) -> None:
        protocol = self._runtime.ports[port]()
        self.transport.protocol = protocol
        self._runtime.turns.run(protocol.connection_made, self.transport)

    def shake_hands(self) -> bool:
        """The handshake of TLS. Returns whether the session is open."""
        session = self.session
        assert session is not None
        for _ in range(6):
            done = session.shake_hands()
            self.transport.feed(session.outgoing())
            if done:
                return True
            session.receive(self.transport.take())
        return False

    def send(self, data: bytes, cuts: tuple[int, ...] = ()) -> None:
        """Bytes of frames, in pieces that end at `cuts`."""
        if self.session is not None and not self.outside:
            self.session.write(data)
            data = self.session.outgoing()
        start = 0
        for end in (*cuts, len(data)):
            if end > start:
                self.transport.feed(data[start:end])
                start = end

    def read(self) -> bytes:
        """What the server sent."""
        data = self.transport.take()
        if self.session is None:
            return data
        if not self.session.is_open or not data:
            return b""  # alerts
        self.session.receive(data)
        try:
            return self.session.read(_READ_BYTES)
        except TlsError:
            return b""

    def commands(self, data: bytes) -> list[RemotingCommand]:
        """The frames of `data`. Raises FrameError or HeaderError."""
        self._decoder.feed(data)
        return [decode_command(frame) for frame in self._decoder.frames()]
