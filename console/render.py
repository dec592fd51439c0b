"""Makes HTML of templates: escaped, in the reader's language, as a whole page or as the live part of one."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lockstep.console import formats
from lockstep.console.console import Console, console_of
from lockstep.console.translations.choose import LANGUAGES, Texts, choose_language

__all__ = [
    "PAGES",
    "compile_templates",
    "html_of",
    "language_of",
    "query_url",
    "redirect",
    "render",
    "render_alone",
    "static_text",
    "with_language",
]

# The pages in the order of the navigation: name -> path. The name is a key of texts, "nav.<name>".
PAGES: Final = {
    "order": "/",
    "groups": "/groups",
    "topics": "/topics",
    "messages": "/messages",
    "brokers": "/brokers",
    "doctor": "/doctor",
}
_LANGUAGE_COOKIE: Final = "lockstep-language"
_ACCEPTED_MAX: Final = 1000  # characters of Accept-Language
# A link of a template to a page of its own cluster; the logout is of all. Texts of others have no '"': it is escaped.
_LINK: Final = re.compile(r'\b((?:href|action|src|data-live)=")/(?!cluster/|logout")')
_LIVE_HEADER: Final = "x-live"  # our script asks for the live part alone


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lockstep.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= formats.FILTERS
    return environment


def compile_templates() -> None:
    """Compile them all: to compile one for its first reader would hold up the others."""
    for name in _environment().list_templates():
        _environment().get_template(name)


@cache
def static_text(name: str) -> str:
    with files("lockstep.console").joinpath("static", name).open(encoding="utf-8") as file:
        return file.read()


def html_of(console: Console, template: str, language: str, context: dict[str, Any]) -> str:
    """The text of a template. `context` has `page`, a name of PAGES, and `layout`, the template around it."""
    texts, now_ms = Texts(language), console.runtime.now_ms()
    common = {
        "t": texts,
        "language": language,
        "languages": LANGUAGES,
        "pages": PAGES,
        "layout": "base.html",
        "brokers": console.collector.brokers(),
        "groups_unnamed": console.collector.groups_unnamed,
        "limits": console.collector.limits.recent(now_ms),
        "name_server": console.cluster.name_server,
        "now_ms": now_ms,
        "token": console.token,
        "cluster": console.name,
        "clusters": console.clusters,
        "is_live": False,
        "may_act": False,
        "account": "",
        "snapshot": False,
    }
    text = _environment().get_template(template).render(common | context)
    return _LINK.sub(rf"\1{console.base}/", text) if console.base else text


def render(request: Request, template: str, *, page: str, status: int = 200, **context: Any) -> Response:
    """Answer a request with a template.

    Args:
        page: A name of PAGES; its link in the navigation is marked.
        context: What the template shows; `is_live=True`: the page asks for its main part again after each change.
    """
    asked = request.query_params.get("lang")
    if asked is not None and request.method == "GET":
        return with_language(request, asked)
    console, language = console_of(request), language_of(request)
    layout = "part.html" if _LIVE_HEADER in request.headers else "base.html"
    given = {
        "page": page,
        "layout": layout,
        "request_path": request.url.path.removeprefix(console.base),
        "query": dict(request.query_params),
        "may_act": "act" in request.auth.scopes,
        "account": request.user.display_name,
    }
    text = html_of(console, template, language, given | context)
    return _page(text, status)


def render_alone(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """As `render`, of a page that knows no cluster."""
    asked = request.query_params.get("lang")
    if asked is not None and request.method == "GET":
        return with_language(request, asked)
    language = language_of(request)
    common = {"t": Texts(language), "language": language, "languages": LANGUAGES}
    return _page(_environment().get_template(template).render(common | context), status)


def _page(text: str, status: int) -> Response:
    page_bytes = text.encode("utf-8", "replace")  # JSON of clients may hold lone surrogates
    return HTMLResponse(page_bytes, status, {"Cache-Control": "no-store", "Vary": "Accept-Language, Cookie, X-Live"})


def language_of(request: Request) -> str:
    accepted = request.headers.get("accept-language", "")[:_ACCEPTED_MAX]
    return choose_language(request.cookies.get(_LANGUAGE_COOKIE), accepted)


def with_language(request: Request, asked: str) -> Response:
    """Keep the chosen language in a cookie, and show the same page without `lang` in its address."""
    query = {name: value for name, value in request.query_params.items() if name != "lang"}
    path = "/" + request.url.path.lstrip("/")  # "//name" would lead to another site
    response = RedirectResponse(query_url(path, query), 303)
    if asked in LANGUAGES:
        response.set_cookie(_LANGUAGE_COOKIE, asked, max_age=31_536_000, samesite="strict", httponly=True)
    return response


def redirect(request: Request, address: str) -> Response:
    """Lead to a page of the same cluster, after a form or a search."""
    return RedirectResponse(console_of(request).base + address, 303)


def query_url(path: str, query: dict[str, Any]) -> str:
    """A path with those parameters that are not None and not empty."""
    kept = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path
