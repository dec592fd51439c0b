"""The ASGI application: the pages, their style and script, the events, and what a failure looks like."""

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lockstep.client.admin.base import NotLockstepError
from lockstep.client.errors import ClientError
from lockstep.console import actions, events
from lockstep.console.console import Console
from lockstep.console.guard import Guard
from lockstep.console.pages import brokers, doctor, groups, messages, order, topics
from lockstep.console.render import render, static_text
from lockstep.protocol.errors import LocalProtocolError, ProtocolError
from lockstep.remoting.errors import RemotingError

__all__ = ["make_app"]

_STATIC: Final = {"style.css": "text/css", "console.js": "text/javascript"}
# What failed -> its status, and the key of the text that explains it.
_FAILURES: Final[dict[type[Exception], tuple[int, str]]] = {
    NotLockstepError: (501, "error.not_lockstep"),
    LocalProtocolError: (400, "error.bad_name"),
    ClientError: (502, "error.no_answer"),
    ProtocolError: (502, "error.no_answer"),
    RemotingError: (502, "error.no_answer"),
    TimeoutError: (502, "error.no_answer"),
}


def make_app(console: Console, own_name: str = "localhost") -> Starlette:
    """
    Args:
        own_name: The name or address that the user gave as --host: the Host header may have it.
    """
    routes = [
        Route("/static/{name}", _static),
        *events.routes(),
        *actions.routes(),
        *(route for page in (order, groups, topics, messages, brokers, doctor) for route in page.routes()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, own_name=own_name)],
        exception_handlers={HTTPException: _http_error, **dict.fromkeys(_FAILURES, _failure)},
    )
    app.state.console = console
    return app


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    headers = {"Cache-Control": "no-cache"}
    return Response(static_text(name), headers=headers, media_type=f"{_STATIC[name]}; charset=utf-8")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    key = "error.not_found" if error.status_code == 404 else "error.refused"
    detail = "" if error.status_code == 404 else error.detail
    return render(request, "error.html", page="", status=error.status_code, text_key=key, detail=detail)


async def _failure(request: Request, error: Exception) -> Response:
    """A broker that does not answer, or has no such request, is a page too."""
    status, key = next(_FAILURES[kind] for kind in _FAILURES if isinstance(error, kind))
    return render(request, "error.html", page="", status=status, text_key=key, detail=str(error))
