"""Contexts of TLS, made from files of certificates and keys. Each problem is a SettingError of one line."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.remoting.errors import ConnectionLost, RemotingError
from lockstep.remoting.settings import SettingError

__all__ = [
    "CLIENT_AUTH",
    "KEY_PASSWORD_VARIABLE",
    "ServerTlsFiles",
    "TlsOptions",
    "client_context",
    "server_context",
    "text_of_failure",
]

KEY_PASSWORD_VARIABLE: Final = "LOCKSTEP_TLS_KEY_PASSWORD"
CLIENT_AUTH: Final = ("none", "optional", "require")  # RocketMQ's words
_VERIFY: Final = dict(zip(CLIENT_AUTH, (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED), strict=True))


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How a client uses TLS.

    Args:
        ca: a file of certificates, PEM, that sign servers; empty: those that the system trusts.
        cert: the client's certificate, PEM, for servers that ask for one; empty: none.
        key: its key, PEM; empty: it is in `cert`.
        verify: check the server's certificate and its name. False: anybody may read and change what is sent.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


class ServerTlsFiles(NamedTuple):
    """The files of a server, PEM.

    Args:
        key: empty: it is in `cert`.
        client_ca: the certificates that sign clients.
        client_auth: one of CLIENT_AUTH.
    """

    cert: str
    key: str = ""
    client_ca: str = ""
    client_auth: str = "none"

    def changed_ns(self) -> tuple[int, ...]:
        """When each file was last changed; 0: it cannot be read."""
        return tuple(_changed_ns(name) for name in (self.cert, self.key, self.client_ca) if name)


def _changed_ns(name: str) -> int:
    try:
        return Path(name).stat().st_mtime_ns
    except OSError:
        return 0


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Raises SettingError for a file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.ca:
        _trust(context, options.ca)
    else:
        context.load_default_certs()
    if options.cert:
        _identify(context, options.cert, options.key)
    elif options.key:
        raise SettingError(f"tls: the key {options.key} has no certificate")
    return context


def text_of_failure(error: RemotingError, tls: TlsOptions | None) -> str:
    """The text of a failed call; a server that wants TLS ends a plain connection without a word."""
    return f"{error} (perhaps it wants TLS)" if tls is None and isinstance(error, ConnectionLost) else str(error)


def server_context(files: ServerTlsFiles) -> ssl.SSLContext:
    """Raises SettingError for a file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _identify(context, files.cert, files.key)
    # Clients of gRPC name the protocol, and go on only with a server that has it; others name none.
    context.set_alpn_protocols(["h2"])
    context.verify_mode = _VERIFY[files.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if not files.client_ca:
            raise SettingError(f"tls: to {files.client_auth} certificates of clients, name the file that signs them")
        _trust(context, files.client_ca)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise SettingError(f"tls: {ca} is no file of certificates: {_why(error)}") from None


def _identify(context: ssl.SSLContext, cert: str, key: str) -> None:
    password = os.environ.get(KEY_PASSWORD_VARIABLE, "")
    try:
        # Without a function OpenSSL asks on the terminal.
        context.load_cert_chain(cert, key or None, lambda: password)
    except (OSError, ssl.SSLError) as error:
        files = f"{cert} and {key} are not" if key else f"{cert} does not have"
        raise SettingError(f"tls: {files} a certificate and its key: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if not error.reason:  # OpenSSL says no more
            return "a part is missing or is not PEM"
        if error.reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "PROBLEMS_GETTING_PASSWORD"):
            return f"the key is encrypted, and {KEY_PASSWORD_VARIABLE} does not open it"
        return error.reason.replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error)
