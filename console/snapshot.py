"""One file with the page Order at this moment, for tickets: no script, nothing loaded from elsewhere."""

from markupsafe import Markup

from lockstep.client.admin.client import AdminClient
from lockstep.console.bounds import Limits
from lockstep.console.collector import Collector
from lockstep.console.console import Cluster, Console
from lockstep.console.gather import gather_once
from lockstep.console.pages.order import order_view
from lockstep.console.render import html_of, static_text
from lockstep.console.translations.choose import Texts
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import EventLog

__all__ = ["snapshot_html", "snapshot_of"]


def snapshot_html(console: Console, language: str = "en") -> str:
    """The page of what was collected; marks lead to the history of their queue below it."""
    view = order_view(console.collector, console.runtime.now_ms(), Texts(language), is_snapshot=True)
    around = {"page": "order", "layout": "snapshot.html", "snapshot": True, "query": {}}
    # Our own style, which has no "</style": it must not be escaped.
    return html_of(console, "order.html", language, around | {"style": Markup(static_text("style.css"))} | view)


async def snapshot_of(name_server: str, language: str, log: EventLog) -> str:
    """Ask the brokers once. Returns the page.

    Raises:
        RemotingError, NoRouteError: No broker answers.
    """
    runtime = AsyncioRuntime()
    async with AdminClient(name_server=name_server, runtime=runtime, log=log) as admin:
        await admin.brokers()  # a cluster that does not answer is an error, not an empty page
        console = Console(Cluster(name_server), Collector(limits=Limits(log)), admin, runtime, token="")
        await gather_once(console)
        return snapshot_html(console, language)
