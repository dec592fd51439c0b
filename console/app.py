"""The ASGI application: the pages, their style and script, the events, and what a failure looks like."""

from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from lockstep.client.admin.base import NotLockstepError
from lockstep.client.errors import ClientError
from lockstep.console import events
from lockstep.console.acts import actions, group_changes, send, topic_changes
from lockstep.console.console import Console
from lockstep.console.guard import Guard
from lockstep.console.login import ACT, Everybody, Login, LoginGate, Sessions
from lockstep.console.pages import brokers, doctor, groups, messages, neighbours, order, topics
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


def make_app(*consoles: Console, own_name: str = "localhost", sessions: Sessions | None = None) -> Starlette:
    """The pages of a cluster, or of several, each below its own base.

    Args:
        own_name: The name or address that the user gave as --host: the Host header may have it.
        sessions: Of those who log in; None: everybody may do all.
    """
    first = consoles[0]
    backend = Everybody() if sessions is None else Login(sessions)
    middleware = [
        Middleware(Guard, own_name=own_name, bases=[console.base for console in consoles]),
        Middleware(AuthenticationMiddleware, backend=backend),
    ]
    if sessions is not None:
        middleware.append(Middleware(LoginGate, sessions=sessions, base=first.base, log=first.log))
    if not first.base:
        return _pages(first, middleware)

    async def to_first(_: Request) -> Response:
        return RedirectResponse(f"{first.base}/", 303)

    mounted = [Mount(console.base, app=_pages(console)) for console in consoles]
    return Starlette(routes=[Route("/", to_first), *mounted], middleware=middleware)


def _pages(console: Console, middleware: Sequence[Middleware] = ()) -> Starlette:
    acts = [route for part in (actions, topic_changes, group_changes, send) for route in part.routes()]
    routes = [
        Route("/static/{name}", _static),
        *events.routes(),
        *[Route(act.path, requires(ACT)(act.endpoint), methods=list(act.methods or ())) for act in acts],
        *(route for page in (order, groups, topics, messages, neighbours, brokers, doctor) for route in page.routes()),
    ]
    app = Starlette(
        routes=routes,
        middleware=middleware,
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
    if error.status_code == 403 and ACT not in request.auth.scopes:
        key, detail = "login.read_only", ""
    return render(request, "error.html", page="", status=error.status_code, text_key=key, detail=detail)


async def _failure(request: Request, error: Exception) -> Response:
    """A broker that does not answer, or has no such request, is a page too."""
    status, key = next(_FAILURES[kind] for kind in _FAILURES if isinstance(error, kind))
    return render(request, "error.html", page="", status=status, text_key=key, detail=str(error))
