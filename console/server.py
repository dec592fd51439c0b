"""Runs the console: the loop that asks brokers, and uvicorn, which serves the pages."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from lockstep.client.admin.client import AdminClient
from lockstep.console.app import make_app
from lockstep.console.bounds import Limits
from lockstep.console.collector import Collector
from lockstep.console.connections import HEAD_BYTES_MAX, BoundedConnection
from lockstep.console.console import Console
from lockstep.console.gather import gather
from lockstep.console.render import compile_templates
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import EventLog

__all__ = ["serve"]

_BACKLOG: Final = 64  # connections that are accepted in one go
_GRACE_S: Final = 3  # a page that is asked for, and the pause between two events
_TOKEN_BYTES: Final = 16


class _Server(uvicorn.Server):
    """uvicorn, whose signals the command handles."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(name_server: str, host: str, port: int, log: EventLog, on_ready: Callable[[str], None]) -> None:
    """Serve pages until the task is cancelled.

    Args:
        port: 0: any free one.
        on_ready: Called with the address of the first page.

    Raises:
        OSError: The address cannot be listened on.
    """
    compile_templates()
    runtime: Runtime = AsyncioRuntime()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    async with AdminClient(name_server=name_server, runtime=runtime, log=log) as admin:
        console = Console(name_server, Collector(limits=Limits(log)), admin, runtime, secrets.token_hex(_TOKEN_BYTES))
        config = uvicorn.Config(
            make_app(console, host),
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
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{listening.getsockname()[1]}/")
        asking = runtime.create_task(gather(console), name="console gather")
        serving = runtime.create_task(server.serve([listening]), name="console")
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            console.feed.end()
            await serving
            raise
        finally:
            asking.cancel()
