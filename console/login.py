"""Who may look at the pages, and who may change something: accounts, attempts, and sessions in a random cookie."""

import hmac
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lockstep.console.pages.parameters import form_of, text_of
from lockstep.console.render import query_url, render_alone
from lockstep.remoting.logs import EventLog

__all__ = ["ACT", "Everybody", "Login", "LoginAccount", "LoginGate", "Sessions"]

ACT: Final = "act"  # the scope of what changes something
_READ: Final = "read"
_COOKIE: Final = "lockstep-session"
_SESSION_S: Final = 12 * 3600.0
_SESSIONS_MAX: Final = 256  # the oldest one ends then
_ATTEMPTS: Final = 5  # that fail, of one address in a minute
_ALL_ATTEMPTS: Final = 60  # of all addresses
_MINUTE_S: Final = 60.0
_SECRET_MAX: Final = 1000  # characters
# A path of this server: a browser takes "//name" and "/\\name" for another one, and leaves out tabs and line ends.
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")


class LoginAccount(NamedTuple):
    """`may_act`: False: it may only look."""

    name: str
    secret: str
    may_act: bool = False


class _Session(NamedTuple):
    account: LoginAccount
    ends_s: float


class Sessions:
    """Checks accounts, and keeps who is logged in.

    Args:
        clock_s: Seconds that only grow.
        draw: Returns a text that nobody can guess.
    """

    def __init__(
        self, accounts: Mapping[str, LoginAccount], clock_s: Callable[[], float], draw: Callable[[], str]
    ) -> None:
        self._accounts = accounts
        self._clock_s = clock_s
        self._draw = draw
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failed: deque[tuple[float, str]] = deque(maxlen=_ALL_ATTEMPTS)
        self._nobody = LoginAccount("", draw())

    def is_open(self, address: str) -> bool:
        """Whether an address may try now."""
        since_s = self._clock_s() - _MINUTE_S
        while self._failed and self._failed[0][0] < since_s:
            self._failed.popleft()
        own = sum(one == address for _, one in self._failed)
        return own < _ATTEMPTS and len(self._failed) < _ALL_ATTEMPTS

    def begin(self, name: str, secret: str, address: str) -> str | None:
        """Return the cookie of a new session; None: name or secret is wrong. A wrong name takes as long as a secret."""
        account = self._accounts.get(name, self._nobody)
        is_right = hmac.compare_digest(_digest(secret), _digest(account.secret))
        if not is_right or account is self._nobody:
            self._failed.append((self._clock_s(), address))
            return None
        cookie = self._draw()
        self._sessions[_key(cookie)] = _Session(account, self._clock_s() + _SESSION_S)
        if len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return cookie

    def account(self, cookie: str) -> LoginAccount | None:
        """Whose session it is; None: it is none, or it has ended."""
        session = self._sessions.get(_key(cookie))
        if session is None or session.ends_s <= self._clock_s():
            self.end(cookie)
            return None
        return session.account

    def end(self, cookie: str) -> None:
        self._sessions.pop(_key(cookie), None)


def _digest(text: str) -> bytes:
    """As long for every text: a comparison of the texts would tell their lengths."""
    return hmac.digest(b"lockstep", text.encode("utf-8", "replace"), "sha256")


def _key(cookie: str) -> str:
    """Sessions are found by a digest: how long a look takes tells nothing of a cookie."""
    return _digest(cookie).hex()


# Starlette's authentication ----------------------------------------------------------------------------------


class Everybody(AuthenticationBackend):
    """Without a login: whoever reaches the console may do all."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser]:
        return AuthCredentials([_READ, ACT]), SimpleUser("")


class Login(AuthenticationBackend):
    """By the cookie of a session."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        account = self._sessions.account(conn.cookies.get(_COOKIE, ""))
        if account is None:
            return None
        return AuthCredentials([_READ, ACT] if account.may_act else [_READ]), SimpleUser(account.name)


class LoginGate:
    """ASGI middleware, behind AuthenticationMiddleware: the page of the login, and nothing else without a session.

    Args:
        base: Where the addresses of the first cluster begin: it has the style.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions, base: str, log: EventLog) -> None:
        self._app = app
        self._sessions = sessions
        self._style = f"{base}/static/style.css"
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, request = scope["path"], Request(scope, receive)
        if path == "/login":
            try:
                answer = await self._login(request)
            except HTTPException as error:  # of a form that is too large, or does not arrive
                answer = PlainTextResponse(error.detail, error.status_code)
            await answer(scope, receive, send)
        elif path == "/logout" and scope["method"] == "POST":
            self._sessions.end(request.cookies.get(_COOKIE, ""))
            left = RedirectResponse("/login", 303)
            left.delete_cookie(_COOKIE)
            await left(scope, receive, send)
        elif request.user.is_authenticated or path == self._style:
            await self._app(scope, receive, send)
        else:
            await _refusal(request)(scope, receive, send)

    async def _login(self, request: Request) -> Response:
        address = request.client.host if request.client is not None else ""
        if request.method in ("GET", "HEAD"):
            return self._page(request, text_of(request.query_params, "next"))
        if request.method != "POST":
            return PlainTextResponse("Method Not Allowed", 405)
        form = await form_of(request)
        to, name = text_of(form, "next"), text_of(form, "name")
        if not self._sessions.is_open(address):
            return self._page(request, to, "login.wait", 429, name)
        cookie = self._sessions.begin(name, form.get("secret", "")[:_SECRET_MAX], address)
        if cookie is None:
            self._log.warning("console_login_refused", account=name[:100], peer=address)
            return self._page(request, to, "login.wrong", 403, name)
        self._log.warning("console_login", account=name, peer=address)
        self._sessions.end(request.cookies.get(_COOKIE, ""))  # the new cookie takes the place of its own
        response = RedirectResponse(to if _OWN_PATH.fullmatch(to) else "/", 303)
        is_tls = request.headers.get("origin", "").startswith("https:")  # of a server before the console
        response.set_cookie(_COOKIE, cookie, max_age=int(_SESSION_S), samesite="strict", httponly=True, secure=is_tls)
        return response

    def _page(self, request: Request, to: str, problem: str = "", status: int = 200, name: str = "") -> Response:
        return render_alone(
            request, "login.html", status=status, next=to, problem=problem, style=self._style, name=name
        )


def _refusal(request: Request) -> Response:
    """To the login, and from there back; 401 for what a page asks for beside, and for a form."""
    headers = Headers(scope=request.scope)
    if request.method not in ("GET", "HEAD") or "x-live" in headers or request.url.path.endswith("/events"):
        return PlainTextResponse("Log in first.\n", 401)
    to = query_url(request.url.path, dict(request.query_params))
    return RedirectResponse(query_url("/login", {"next": to}), 303)
