"""TLS of a broker's and a name server's ports: the certificate, looked at again while the server runs."""

import os
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep.broker.config import BrokerConfig
from lockstep.remoting.host.runtime import ProtocolFactory, Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import SettingError
from lockstep.remoting.tls.options import ServerTlsFiles, server_context
from lockstep.remoting.tls.port import TlsPort

__all__ = ["MadeTls", "ServerTls"]

_CA, _SERVER = "ca.pem", "server.pem"


class ServerTls:
    """The ports of one server.

    Raises:
        SettingError: A file cannot be used.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime, log: EventLog) -> None:
        self._log = log
        if config.tls_mode == "test":
            self._files = _test_files(config, log)
        else:
            self._files = ServerTlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca, config.tls_client_auth)
        self._changed_ns = self._files.changed_ns()
        self._context: ssl.SSLContext = server_context(self._files)
        plain_allowed = config.tls_mode != "enforcing"
        self._port = TlsPort(runtime, lambda: self._context, log, plain_allowed=plain_allowed)

    def wrap(self, factory: ProtocolFactory) -> ProtocolFactory:
        """What makes the protocols of new connections, with TLS below them."""
        return self._port.wrap(factory)

    def close(self) -> None:
        """End the connections that have sent nothing yet, and those whose handshake is not done."""
        self._port.close()

    def look(self, _now_ms: int) -> None:
        """Read the files again if one changed. Files that cannot be used change nothing."""
        changed_ns = self._files.changed_ns()
        if changed_ns == self._changed_ns:
            return
        self._changed_ns = changed_ns
        try:
            self._context = server_context(self._files)
        except SettingError as error:
            self._log.error("tls_reload_failed", reason=str(error), effect="the last certificate stays")
        else:
            self._log.info("tls_reloaded", certificate=self._files.cert)


class MadeTls:
    """TLS of a port for which nobody gave a certificate: one is made at the first handshake, and kept in memory.

    It serves clients that trust any certificate. Plain connections are served as well.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime, log: EventLog) -> None:
        self._config = config
        self._log = log
        self._context: ssl.SSLContext | None = None
        self._port = TlsPort(runtime, self._made, log, plain_allowed=True)

    def wrap(self, factory: ProtocolFactory) -> ProtocolFactory:
        """See `ServerTls`."""
        return self._port.wrap(factory)

    def close(self) -> None:
        """See `ServerTls`."""
        self._port.close()

    def _made(self) -> ssl.SSLContext:
        """Raises SettingError when no certificate can be made."""
        if self._context is None:
            try:
                # OpenSSL reads certificates from files only.
                with TemporaryDirectory(prefix="lockstep-tls-") as folder:
                    _make(self._config, Path(folder))
                    self._context = server_context(ServerTlsFiles(str(Path(folder) / _SERVER)))
            except OSError as error:
                raise SettingError(f"tls: no certificate can be made: {error.strerror or error}") from None
            self._log.info("tls_certificate_made", effect="clients must trust any certificate, or not use TLS")
        return self._context


def _test_files(config: BrokerConfig, log: EventLog) -> ServerTlsFiles:
    """A certificate for tests, and the one that signs it, made at the first start and then used again."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(config.data_dir) / "config" / "tls" if config.data_dir else Path(state) / "lockstep" / "tls-test"
    ca, server = folder / _CA, folder / _SERVER
    try:
        if not (ca.exists() and server.exists()):
            _make(config, folder)
    except OSError as error:
        raise SettingError(f"tls: no certificate can be made in {folder}: {error.strerror or error}") from None
    log.info("tls_test_certificate", ca=str(ca), server=str(server))
    return ServerTlsFiles(str(server), "", config.tls_client_ca, config.tls_client_auth)


def _make(config: BrokerConfig, folder: Path) -> None:
    try:
        import trustme  # an extra, only for this
    except ImportError:
        text = "tls: a certificate is made by trustme; install it: pip install 'lockstep-mq[tls]'"
        raise SettingError(text) from None

    names = dict.fromkeys((config.advertised_host, config.host, "127.0.0.1", "localhost"))
    names.pop("0.0.0.0", None)
    signer = trustme.CA()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        made = signer.issue_cert(*(name for name in names if name))
    except ValueError:
        # No certificate can have such a name, as one with an underscore. Clients that check it do not connect.
        made = signer.issue_cert("127.0.0.1", "localhost")
    (folder / _SERVER).touch(mode=0o600)
    (folder / _SERVER).chmod(0o600)
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / _SERVER))
    signer.cert_pem.write_to_path(str(folder / _CA))
