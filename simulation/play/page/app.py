"""The ASGI application of `lockstep-sim play`: its page, the scenes as events, and the acts of its user."""

import hmac
import json
from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lockstep.console.guard import Guard
from lockstep.console.render import language_of, static_text, with_language
from lockstep.console.translations.choose import LANGUAGES
from lockstep.simulation.play.lessons.routes import LESSON_ROUTES
from lockstep.simulation.play.page.chinese import in_language
from lockstep.simulation.play.page.reading import article_parts, docs_parts
from lockstep.simulation.play.page.texts import THINGS, texts_in
from lockstep.simulation.play.refusal import RefusedError

__all__ = ["Session", "make_app"]

_PAGES_MAX: Final = 16  # open at once: each gets every scene
_STATIC: Final = {".css": "text/css", ".js": "text/javascript"}
_HELPS: Final = {
    "Space": "help.space",
    ".": "help.event",
    "→ ←": "help.second",
    "+ -": "help.speed",
    "] [": "help.mark",
    "Home End": "help.ends",
    "u": "help.undo",
    "Enter": "help.touch",
    "Esc": "help.escape",
    "?": "help.help",
}


class Session(Protocol):
    """What the page needs of the controller of a run."""

    token: str

    async def do(self, act: dict[str, Any]) -> None:
        """Do an act of the page. Raises RefusedError."""

    def scenes(self) -> AsyncIterator[dict[str, Any]]:
        """The scenes of one connection, the whole story first. It ends when the command ends."""

    async def judged(self) -> None:
        """Wait until the judge has read all that is shown."""

    async def home(self) -> dict[str, str]:
        """What repeats the run elsewhere, as `take_home` makes it. Raises RefusedError."""

    async def timeline(self) -> str:
        """The page with the timelines of all sides. Raises RefusedError."""


def make_app(session: Session, own_name: str = "localhost") -> Starlette:
    """
    Args:
        own_name: The name or address that the user gave as --host: the Host header may have it.
    """
    routes = [
        Route("/", _page),
        Route("/static/{name}", _static),
        Route("/do", _do, methods=["POST"]),
        *(Route(f"/{name}", take) for name, take in _ASKED.items()),
        Route("/docs/{name}", _docs),
        Route("/article/{article}/{section}", _article),
        *LESSON_ROUTES,
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, own_name=own_name)])
    app.state.session = session
    app.state.pages = 0
    return app


# The page ----------------------------------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    loader = PackageLoader("lockstep.simulation.play.page")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _html(request: Request, template: str, **context: Any) -> Response:
    language = language_of(request)
    given = {"language": language, "languages": LANGUAGES, "t": texts_in(language)}
    text = _environment().get_template(template).render(given | context)
    return HTMLResponse(text, 200, {"Cache-Control": "no-store", "Vary": "Accept-Language, Cookie"})


async def _page(request: Request) -> Response:
    asked = request.query_params.get("lang")
    if asked is not None:
        return with_language(request, asked)
    things = {name: thing._asdict() for name, thing in THINGS.items()}
    data = {"token": request.app.state.session.token, "texts": texts_in(language_of(request)), "things": things}
    return _html(request, "play.html", data=_embedded(data), things=THINGS, helps=_HELPS)


def _refusal(request: Request, error: RefusedError) -> Response:
    said = in_language({"text": str(error), "said": error.said}, language_of(request))
    return JSONResponse({"error": said["text"]}, 400)


def _embedded(data: Mapping[str, Any]) -> Markup:
    """JSON inside a script element: no text of it can end the element."""
    return Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _STATIC.get(name[name.rfind(".") :])
    if kind is None:
        raise HTTPException(404)
    text = static_text(name) if name == "style.css" else _own_text(name)
    return Response(text, headers={"Cache-Control": "no-cache"}, media_type=f"{kind}; charset=utf-8")


def _own_text(name: str) -> str:
    found = files("lockstep.simulation.play.page").joinpath("static", name)
    if not found.is_file():
        raise HTTPException(404)
    return found.read_text("utf-8")


async def _docs(request: Request) -> Response:
    name = request.path_params["name"]
    return _html(request, "docs.html", title=name, parts=docs_parts(name, texts_in(language_of(request))))


async def _article(request: Request) -> Response:
    section = "{article}/{section}".format(**request.path_params)
    return _html(request, "docs.html", title=section, parts=article_parts(section, texts_in(language_of(request))))


# The run -----------------------------------------------------------------------------------------------------


class _ScenesResponse(StreamingResponse):
    """A stream of scenes; it counts from the request to its end."""

    def __init__(self, request: Request) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(
            _events(request.app.state.session, language_of(request)), media_type="text/event-stream", headers=headers
        )
        self._counted = request.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._counted.pages >= _PAGES_MAX:
            await PlainTextResponse(f"{_PAGES_MAX} pages are open already", 503)(scope, receive, send)
            return
        self._counted.pages += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._counted.pages -= 1


async def _scenes(request: Request) -> Response:
    if request.method != "GET":  # the answer to HEAD would not end
        raise HTTPException(405)
    return _ScenesResponse(request)


async def _events(session: Session, language: str) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    async for scene in session.scenes():
        data = json.dumps(in_language(scene, language), separators=(",", ":"))
        yield b"event: scene\ndata: %b\n\n" % data.encode()


async def _do(request: Request) -> Response:
    session: Session = request.app.state.session
    if not hmac.compare_digest(request.headers.get("x-token", "").encode(), session.token.encode()):
        return JSONResponse({"error": "This page is of an earlier start: load it again."}, 403)
    try:
        act = json.loads(await request.body())
    except (ValueError, RecursionError):  # lists in lists, too deep to read
        return JSONResponse({"error": "An act is a JSON object."}, 400)
    if not isinstance(act, dict):
        return JSONResponse({"error": "An act is a JSON object."}, 400)
    try:
        await session.do(act)
    except RefusedError as error:
        return _refusal(request, error)
    return JSONResponse({})


async def _home(request: Request) -> Response:
    try:
        return JSONResponse(await request.app.state.session.home(), headers={"Cache-Control": "no-store"})
    except RefusedError as error:
        return _refusal(request, error)


async def _timeline(request: Request) -> Response:
    """As a file: the page has its script and style inside, which the guard does not let run here."""
    try:
        page = await request.app.state.session.timeline()
    except RefusedError as error:
        return _refusal(request, error)
    return HTMLResponse(page, headers={"Content-Disposition": "attachment; filename=timeline.html"})


_ASKED: Final = {"scenes": _scenes, "home": _home, "timeline": _timeline}
