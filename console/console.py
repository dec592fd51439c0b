"""What every page can reach: what was collected, the admin client for questions, and the token of forms."""

from dataclasses import dataclass, field

from starlette.requests import Request

from lockstep.client.admin.client import AdminClient
from lockstep.console.collector import Collector
from lockstep.console.events import Feed
from lockstep.remoting.runtime import Runtime

__all__ = ["Console", "console_of"]


@dataclass
class Console:
    """
    Args:
        name_server: As the user gave it.
        collector: What the brokers answered until now.
        admin: For what a page asks when it is opened.
        token: A form that changes something has to send it back.
    """

    name_server: str
    collector: Collector
    admin: AdminClient
    runtime: Runtime
    token: str
    feed: Feed = field(default_factory=Feed)


def console_of(request: Request) -> Console:
    console: Console = request.app.state.console
    return console
