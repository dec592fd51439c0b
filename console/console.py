"""What every page can reach: what was collected, the admin client for questions, and the token of forms."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypedDict

from starlette.requests import Request

from lockstep.client.admin.client import AdminClient
from lockstep.console.bounds import PAGE_BYTES_MAX
from lockstep.console.collector import Collector
from lockstep.console.events import Feed
from lockstep.protocol.signature import Credentials
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.tls.options import TlsOptions

__all__ = ["PATIENCE_S", "Access", "Cluster", "Console", "console_of"]

PATIENCE_S: Final = 2.0  # of a page that asks brokers when it is opened


class Access(TypedDict):
    """Arguments of AdminClient and Producer."""

    name_server: str
    credentials: Credentials | None
    tls: TlsOptions | bool | None


@dataclass(frozen=True)
class Cluster:
    """One of the clusters that a console shows.

    Args:
        name: In addresses; "": the only one.
        credentials, tls: As of AdminClient; None: what the environment says.
    """

    name_server: str
    name: str = ""
    credentials: Credentials | None = None
    tls: TlsOptions | bool | None = None

    @property
    def access(self) -> Access:
        return {"name_server": self.name_server, "credentials": self.credentials, "tls": self.tls}


@dataclass
class Console:
    """
    Args:
        cluster: Which one it shows.
        collector: What the brokers answered until now.
        client: The admin client of the console.
        token: A form that changes something has to send it back.
        log: Gets a line for each change.
        sizes: Of topics that were looked at: when it was read, epoch ms, and the bytes.
        clusters: The names of all that are shown beside each other.
    """

    cluster: Cluster
    collector: Collector
    client: AdminClient
    runtime: Runtime
    token: str
    feed: Feed = field(default_factory=Feed)
    log: EventLog = field(default_factory=partial(StdlibLog, "lockstep.console"))
    sizes: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    clusters: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def base(self) -> str:
        """Where the addresses of its pages begin, without a slash at the end."""
        return f"/cluster/{self.name}" if self.name else ""

    @property
    def access(self) -> Access:
        """How a client of its own reaches the cluster."""
        return self.cluster.access

    @property
    def admin(self) -> AdminClient:
        """For what a page asks when it is opened: the answers to it are bounded."""
        return self.client.bounded(PAGE_BYTES_MAX)

    def tolerant_admin(self) -> AdminClient:
        """Return `admin` for a page that goes on without brokers that do not answer. Those that are gone are not asked.

        `left_out` says which are missing.
        """
        return self.admin.tolerant(PATIENCE_S, self._gone())

    def left_out(self, admin: AdminClient) -> dict[str, str]:
        """Return which brokers a tolerant client went on without, and why; empty: the top of each page says it."""
        gone = self._gone()
        return {name: "" if name in gone else why for name, why in admin.left_out.items()}

    def _gone(self) -> dict[str, str]:
        return {state.name: state.error for state in self.collector.brokers() if state.gone_ms is not None}


def console_of(request: Request) -> Console:
    console: Console = request.app.state.console
    return console
