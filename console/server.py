"""Runs the console: the loop that asks brokers, and uvicorn, which serves the pages; also those of others."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette

from lockstep.client.admin.client import AdminClient
from lockstep.console.app import make_app
from lockstep.console.bounds import Limits
from lockstep.console.collector import Collector
from lockstep.console.connections import HEAD_BYTES_MAX, BoundedConnection
from lockstep.console.console import Cluster, Console
from lockstep.console.gather import gather
from lockstep.console.login import LoginAccount, Sessions
from lockstep.console.render import compile_templates
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import EventLog

__all__ = ["address_of", "listen", "serve", "serve_app"]

_BACKLOG: Final = 64  # connections that are accepted in one go
_GRACE_S: Final = 3  # a page that is asked for, and the pause between two events
_TOKEN_BYTES: Final = 32


class _Server(uvicorn.Server):
    """uvicorn, whose signals the command handles."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _draw() -> str:
    """A text that nobody can guess: the token of forms, the cookie of a session."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


async def serve(
    clusters: Sequence[Cluster],
    host: str,
    port: int,
    log: EventLog,
    on_ready: Callable[[str], None],
    accounts: Mapping[str, LoginAccount] | None = None,
) -> None:
    """Serve pages until the task is cancelled.

    Args:
        clusters: Several have names.
        port: 0: any free one.
        on_ready: Called with the address of the first page.
        accounts: By name, that may log in; None: everybody may do all.

    Raises:
        OSError: The address cannot be listened on.
    """
    compile_templates()
    runtime: Runtime = AsyncioRuntime()
    listening = listen(host, port)
    token, names = _draw(), [one.name for one in clusters if one.name]
    async with AsyncExitStack() as running:
        consoles = []
        for one in clusters:
            admin = await running.enter_async_context(AdminClient(**one.access, runtime=runtime, log=log))
            collector = Collector.one_of(len(clusters), Limits(log))
            made = Console(one, collector, admin, runtime, token, log=log, clusters=names)
            consoles.append(made)
        sessions = None if accounts is None else Sessions(accounts, lambda: runtime.monotonic_ns() / 1e9, _draw)
        on_ready(address_of(host, listening))
        asking = [runtime.create_task(gather(one), name=f"console gather {one.name}") for one in consoles]

        def end_streams() -> None:
            for console in consoles:
                console.feed.end()

        try:
            await serve_app(make_app(*consoles, own_name=host, sessions=sessions), listening, runtime, end_streams)
        finally:
            for task in asking:
                task.cancel()


def listen(host: str, port: int) -> socket.socket:
    """Listen for pages. Raises OSError.

    Args:
        port: 0: any free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def address_of(host: str, listening: socket.socket) -> str:
    """The address of the first page."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


async def serve_app(app: Starlette, listening: socket.socket, runtime: Runtime, on_end: Callable[[], None]) -> None:
    """Serve an application until the task is cancelled.

    Args:
        on_end: Ends the streams of events: the server waits for them before it ends.
    """
    config = uvicorn.Config(
        app,
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # a peer can cause any number of warnings
        access_log=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    serving = runtime.create_task(server.serve([listening]), name="pages")
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        on_end()
        await serving
        raise
