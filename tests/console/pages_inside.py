"""A console inside of the test's process: requests to its pages without a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

from lockstep.client.admin.client import AdminClient
from lockstep.console.app import make_app
from lockstep.console.collector import Collector
from lockstep.console.console import Cluster, Console
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from tests.integration.harness.processes import PATIENT_CLIENT

__all__ = ["OWN", "Answer", "Clock", "Pages", "Recorder", "ask", "ask_app", "make_console", "pages_of"]

NOWHERE = "127.0.0.1:1"
OWN = {"origin": "http://127.0.0.1:8088"}


class Clock(AsyncioRuntime):
    """Time goes on when a test says so."""

    def __init__(self, ms: int) -> None:
        super().__init__()
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def make_console(
    collector: Collector | None = None, admin: AdminClient | None = None, runtime: Runtime | None = None
) -> Console:
    """Without `admin`, what asks a broker fails as if none answered."""
    admin = admin or AdminClient(name_server=NOWHERE)
    return Console(Cluster(NOWHERE), collector or Collector(), admin, runtime or AsyncioRuntime(), "token")


async def ask(
    console: Console, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """One request of a browser on this machine."""
    return await ask_app(make_app(console), path, method=method, headers=headers, body=body)


async def ask_app(
    app: ASGIApp, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """As `ask`, of any application."""
    given = {"host": "127.0.0.1:8088"} | (headers or {})
    address, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},  # a stream need not ask whether its reader has left
        "http_version": "1.1",
        "method": method,
        "path": address,
        "raw_path": address.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 8088),
        "client": ("127.0.0.1", 5),
        "root_path": "",
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, text)


class Recorder:
    """The warnings in the log of a console."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})

    error = warning

    def info(self, event: str, **fields: Any) -> None: ...

    debug = info


class Pages(NamedTuple):
    console: Console
    admin: AdminClient
    log: Recorder

    async def get(self, path: str, **query: str) -> Answer:
        return await ask(self.console, f"{path}?{urlencode(query)}")

    async def post(self, path: str, **form: str) -> Answer:
        body = urlencode({"token": "token"} | form).encode()
        return await ask(self.console, path, method="POST", headers=OWN, body=body)


@asynccontextmanager
async def pages_of(name_server: str) -> AsyncIterator[Pages]:
    """The pages over a live broker."""
    log = Recorder()
    async with AdminClient(name_server=name_server, config=PATIENT_CLIENT) as admin:
        console = Console(Cluster(name_server), Collector(), admin, AsyncioRuntime(), "token", log=log)
        yield Pages(console, admin, log)
