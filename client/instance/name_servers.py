"""The name servers of a client: given by the user, or discovered over HTTP (wire.md 12.1).

A client begins with a random one, keeps it while it answers, and takes the next one when it does not. Without given
addresses a client gets them from `http://DOMAIN:8080/rocketmq/nsaddr[-UNIT?nofix=1]`, before its first request and then
every two minutes. The known addresses stay while that URL does not answer.
"""

from lockstep.client.config import ClientConfig
from lockstep.client.errors import NoRouteError
from lockstep.protocol.codes import ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.dialer import Dialer
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address, SettingError, parse_addresses
from lockstep.remoting.tls.options import text_of_failure

__all__ = ["NameServers", "discovery_url"]

_DISCOVERY_PORT = 8080
_DISCOVERY_TIMEOUT_MS = 3000


def discovery_url(config: ClientConfig) -> str | None:
    """The URL from which RocketMQ's clients get name servers; None without a domain."""
    if not config.name_server_domain:
        return None
    domain = config.name_server_domain
    host = domain if ":" in domain else f"{domain}:{_DISCOVERY_PORT}"
    unit = f"-{config.unit_name}?nofix=1" if config.unit_name else ""
    return f"http://{host}/rocketmq/{config.name_server_domain_subgroup}{unit}"


class NameServers:
    """`given` are the user's addresses. Only when there are none, `url` is set and addresses are discovered."""

    def __init__(
        self, runtime: Runtime, given: tuple[Address, ...], config: ClientConfig, dialer: Dialer, log: EventLog
    ) -> None:
        self._runtime = runtime
        self._dialer = dialer
        self._log = log
        self._timeout_ms = config.request_timeout_ms
        self._tls = config.tls
        self._addresses = [str(address) for address in given]
        self._chosen: str | None = None
        self.url = None if given else discovery_url(config)

    @property
    def text(self) -> str:
        """ "host:port;host:port"."""
        return ";".join(self._addresses)

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    async def all(self) -> list[str]:
        """Every address, discovered first when there is none yet. Raises NoRouteError."""
        if not self._addresses and self.url is not None:
            await self.discover()
        if not self._addresses:
            raise NoRouteError(f"no name server is known: {self.url} named none")
        return list(self._addresses)

    async def ask(self, code: int, header: tuple[object, ...] | None = None) -> tuple[str, RemotingCommand]:
        """Send a request to a name server that answers.

        Returns:
            The name server's address and its reply.

        Raises:
            NoRouteError: No name server answered.
        """
        addresses = await self.all()
        if self._chosen not in addresses:
            self._chosen = addresses[0] if len(addresses) == 1 else self._runtime.rng.choice(addresses)
        first = addresses.index(self._chosen)
        failures = []
        for address in addresses[first:] + addresses[:first]:
            try:
                reply = await self._dialer.call(address, RemotingCommand(code, header), self._timeout_ms)
            except RemotingError as error:
                failures.append(text_of_failure(error, self._tls))
            else:
                if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    failures.append(
                        f"{address} does not know {request_name(code)} and so is no name server; by default a name "
                        "server listens on port 9876, and a broker on 10911"
                    )
                    continue
                if address != self._chosen and failures:
                    self._log.info("name_server_changed", name_server=address, failures=failures)
                self._chosen = address
                return address, reply
        raise NoRouteError("no name server answered: " + "; ".join(failures))

    async def discover(self) -> None:
        """Get the addresses from `url`, which must be set. The known addresses stay when that fails."""
        from lockstep.client.instance.http_get import HttpGetFailed, http_get  # here: most clients need no HTTP

        assert self.url is not None
        try:
            text = await http_get(self._runtime, self.url, _DISCOVERY_TIMEOUT_MS)
            # RocketMQ's clients read the first line, too.
            lines = text.strip().splitlines()
            found = [str(address) for address in parse_addresses(lines[0] if lines else "")]
        except (HttpGetFailed, SettingError) as error:
            self._log.warning("name_servers_not_discovered", url=self.url, error=str(error))
            return
        if sorted(found) != sorted(self._addresses):
            self._log.info("name_servers_discovered", url=self.url, name_servers=found)
            self._addresses = found
