"""A console inside of the test's process: requests to its pages without a socket."""

from typing import NamedTuple

from starlette.types import Message

from lockstep.client.admin.client import AdminClient
from lockstep.console.app import make_app
from lockstep.console.collector import Collector
from lockstep.console.console import Console
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime

__all__ = ["Answer", "ask", "make_console"]

NOWHERE = "127.0.0.1:1"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def make_console(
    collector: Collector | None = None, admin: AdminClient | None = None, runtime: Runtime | None = None
) -> Console:
    """Without `admin`, what asks a broker fails as if none answered."""
    admin = admin or AdminClient(name_server=NOWHERE)
    return Console(NOWHERE, collector or Collector(), admin, runtime or AsyncioRuntime(), "token")


async def ask(
    console: Console, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """One request of a browser on this machine."""
    given = {"host": "127.0.0.1:8088"} | (headers or {})
    address, _, query = path.partition("?")
    scope = {
        "type": "http",
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

    await make_app(console)(scope, receive, send)
    start = sent[0]
    text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, text)
