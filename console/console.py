"""What every page can reach: what was collected, the admin client for questions, and the token of forms."""

from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request

from lockstep.client.admin.client import AdminClient
from lockstep.console.bounds import PAGE_BYTES_MAX
from lockstep.console.collector import Collector
from lockstep.console.events import Feed
from lockstep.remoting.host.runtime import Runtime

__all__ = ["PATIENCE_S", "Console", "console_of"]

PATIENCE_S: Final = 2.0  # of a page that asks brokers when it is opened


@dataclass
class Console:
    """
    Args:
        name_server: As the user gave it.
        collector: What the brokers answered until now.
        client: The admin client of the console.
        token: A form that changes something has to send it back.
    """

    name_server: str
    collector: Collector
    client: AdminClient
    runtime: Runtime
    token: str
    feed: Feed = field(default_factory=Feed)

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
