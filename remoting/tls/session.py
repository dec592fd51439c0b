"""One end of a TLS connection, without its socket: bytes in, bytes out."""

import ssl
from typing import Final

__all__ = ["ENDED_EARLY", "RECORD_TYPE_HANDSHAKE", "TlsError", "TlsSession", "reason_of"]

# The first byte of a TLS connection (wire.md 1.1); no frame begins with it.
RECORD_TYPE_HANDSHAKE: Final = 0x16
ENDED_EARLY: Final = "the peer ended the connection in the handshake; perhaps it does not speak TLS"
_READ_BYTES: Final = 64 * 1024


class TlsError(Exception):
    """The handshake failed, or what arrived is not TLS. The text is one line."""


class TlsSession:
    """The methods that read raise TlsError; then `outgoing` has the alert for the peer.

    Args:
        context: Made by `options.py`.
        server: This end waits for the peer's handshake.
        host: The name or address that the server's certificate must have; None: any.

    Attributes:
        is_open: The handshake is done.
        is_ended: The peer ended the session in order.
    """

    def __init__(self, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=host)
        self.is_open = False
        self.is_ended = False

    def receive(self, data: bytes) -> None:
        """Take bytes of the transport."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake. Returns whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsError(reason_of(error)) from None
        self.is_open = True
        return True

    def read(self, size: int) -> bytes:
        """At least `size` bytes of the peer, or all that are there; none when more must arrive first."""
        parts: list[bytes] = []
        while size > 0 and not self.is_ended:
            try:
                part = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                raise TlsError(reason_of(error)) from None
            self.is_ended = not part
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        if data:
            self._tls.write(data)

    def outgoing(self) -> bytes:
        """The bytes for the transport since the last call."""
        return self._outgoing.read()

    def end(self) -> None:
        """Tell the peer that no more comes."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # The peer's own end, which need not come, or a session that failed.
            pass

    def describe(self) -> str:
        """Version and cipher, for a log."""
        cipher = self._tls.cipher()
        return f"{self._tls.version()} {cipher[0] if cipher else ''}".strip()


def reason_of(error: ssl.SSLError) -> str:
    """Why a connection over TLS failed, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    return str(error.reason or error).replace("_", " ").lower()
