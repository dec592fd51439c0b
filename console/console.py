"""What every page can reach: what was collected, the admin client for questions, and the token of forms."""

from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request

from lockstep.client.admin.client import AdminClient
from lockstep.client.errors import ClientError
from lockstep.console.bounds import PAGE_BYTES_MAX
from lockstep.console.collector import Collector
from lockstep.console.events import Feed
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["FAILURES", "Console", "console_of", "no_answer_within"]

FAILURES: Final = (RemotingError, ClientError, ProtocolError, TimeoutError)  # of a question to a broker


def no_answer_within(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


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


def console_of(request: Request) -> Console:
    console: Console = request.app.state.console
    return console
