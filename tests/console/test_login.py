"""Who may look, and who may change something: accounts, cookies, attempts, and the options of the command."""

import secrets
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.authentication import SimpleUser
from starlette.requests import Request

from lockstep.cli.console import console, login_accounts
from lockstep.cli.output import CliError, UsageError
from lockstep.console.acts.changes import log_change
from lockstep.console.app import make_app
from lockstep.console.login import LoginAccount, Sessions
from lockstep.console.render import PAGES
from tests.console.pages_inside import NOWHERE, OWN, Answer, Recorder, ask_app, make_console
from tests.console.readings import reading, watched
from tests.rows import by_row

CHIEF, READER = LoginAccount("chief", "chief-secret", may_act=True), LoginAccount("reader", "reader-secret")
ACTS = ("/topic/edit", "/topic/delete?topic=T", "/group/edit", "/group/delete?group=shop", "/send",
        "/reset?group=shop&topic=orders", "/release?group=shop&topic=orders&broker=broker-a&queue=0")  # fmt: skip


class Site:
    """A console with a login, and the clock of its sessions."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sessions = Sessions(
            {one.name: one for one in (CHIEF, READER)}, lambda: self.now_s, partial(secrets.token_hex, 8)
        )
        console = make_console(watched(reading(), epoch=7))
        console.log = self.log = Recorder()
        self.app = make_app(console, sessions=self.sessions)

    async def get(self, path: str, cookie: str = "", **headers: str) -> Answer:
        return await ask_app(self.app, path, headers={"cookie": cookie} | headers)

    async def post(self, path: str, cookie: str = "", origin: str = OWN["origin"], **form: str) -> Answer:
        headers = {"cookie": cookie, "origin": origin}
        return await ask_app(self.app, path, method="POST", headers=headers, body=urlencode(form).encode())

    async def log_in(self, name: str, secret: str, to: str = "") -> Answer:
        return await self.post("/login", name=name, secret=secret, next=to)

    async def cookie_of(self, account: LoginAccount) -> str:
        answer = await self.log_in(account.name, account.secret)
        assert answer.status == 303
        return answer.headers["set-cookie"].partition(";")[0]


@by_row("path", [*PAGES.values(), *ACTS, "/group?group=shop", "/message/of-key?x=1", "/nowhere", "/static/console.js"])
async def test_nothing_is_shown_without_a_session(path: str) -> None:
    """Each address leads to the login, and knows the way back; also with a cookie that is none."""
    site = Site()
    for cookie in ("", "lockstep-session=guess", "lockstep-session="):
        answer = await site.get(path, cookie)
        assert (answer.status, answer.text) == (303, "")
        assert answer.headers["location"] == f"/login?{urlencode({'next': path})}"


async def test_what_a_page_asks_for_beside_gets_no_page() -> None:
    """The stream of events, the live part of a page, and forms, whose token alone is not enough."""
    site = Site()
    assert (await site.get("/events")).status == 401
    assert (await site.get("/groups", **{"x-live": "1"})).status == 401
    assert (await site.post("/topic/edit", token="token", topic="T", read="1", write="1", perm="rw")).status == 401
    assert (await site.get("/static/style.css")).status == 200
    assert not site.log.lines


async def test_a_login_and_a_logout() -> None:
    """The cookie is a new one each time, is no script's, and ends at the logout."""
    site = Site()
    form = await site.get("/login?next=/groups")
    assert form.status == 200
    assert "broker" not in form.text.lower()
    answer = await site.log_in("chief", "chief-secret", "/group?group=shop")
    assert answer.headers["location"] == "/group?group=shop"
    assert "httponly; max-age=43200; path=/; samesite=strict" in answer.headers["set-cookie"].lower()
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert cookie != await site.cookie_of(CHIEF)
    assert "Log out chief" in (await site.get("/groups", cookie)).text
    assert (await site.post("/logout", cookie, origin="http://evil.example")).status == 403
    assert (await site.get("/groups", cookie)).status == 200
    assert (await site.post("/logout", cookie)).headers["location"] == "/login"
    assert (await site.get("/groups", cookie)).status == 303
    assert site.log.lines[0] == {"event": "console_login", "account": "chief", "peer": "127.0.0.1"}


async def test_a_cookie_behind_tls_never_leaves_without_it() -> None:
    """The Origin says how the browser reached the server before the console."""
    site = Site()
    form = {"name": "chief", "secret": "chief-secret"}
    for origin, is_secure in ((OWN["origin"].replace("http:", "https:"), True), (OWN["origin"], False)):
        answer = await site.post("/login", origin=origin, **form)
        assert ("; secure" in answer.headers["set-cookie"].lower()) is is_secure


async def test_a_new_login_ends_the_session_before_it() -> None:
    """Nobody would see it any more, to log it out."""
    site = Site()
    before = await site.cookie_of(READER)
    answer = await site.post("/login", before, name="chief", secret="wrong")
    assert 'value="chief"' in answer.text
    assert (await site.get("/groups", before)).status == 200
    await site.post("/login", before, name="chief", secret="chief-secret")
    assert (await site.get("/groups", before)).status == 303


async def test_a_session_ends() -> None:
    """After 12 hours; and the oldest one, when there are too many."""
    site = Site()
    cookie = await site.cookie_of(CHIEF)
    site.now_s = 43_199
    assert (await site.get("/groups", cookie)).status == 200
    site.now_s = 43_200
    assert (await site.get("/groups", cookie)).status == 303
    kept = [site.sessions.begin("chief", "chief-secret", "a") or "" for _ in range(257)]
    assert [one for one in kept if site.sessions.account(one) is None] == kept[:1]


@by_row(
    "name, secret",
    [("chief", "wrong"), ("chief", ""), ("", ""), ("nobody", "chief-secret"), ("CHIEF", "chief-secret"),
     ("chief", "chief-secret\x00"), ("chief", "reader-secret")],
)  # fmt: skip
async def test_a_wrong_account(name: str, secret: str) -> None:
    """One sentence for all: it does not say whether there is such an account."""
    site = Site()
    answer = await site.log_in(name, secret)
    assert answer.status == 403
    assert "This account and password do not belong together." in answer.text
    assert "set-cookie" not in answer.headers
    assert site.log.lines == [{"event": "console_login_refused", "account": name, "peer": "127.0.0.1"}]


async def test_attempts_are_bounded() -> None:
    """Five that fail in a minute, of one address; then not even the right password is looked at."""
    site = Site()
    for _ in range(5):
        assert (await site.log_in("chief", "wrong")).status == 403
    answer = await site.log_in("chief", "chief-secret")
    assert (answer.status, "Wait a minute" in answer.text) == (429, True)
    assert site.sessions.is_open("10.0.0.9")
    site.now_s = 61
    assert (await site.log_in("chief", "chief-secret")).status == 303
    for number in range(60):
        site.sessions.begin("chief", "wrong", f"10.0.0.{number}")
    assert not site.sessions.is_open("10.0.1.1"), "of many addresses together"


@by_row(
    "to", ["//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example", "evil", "", "/a\r\nb: c"]
)
async def test_a_login_leads_to_this_console_alone(to: str) -> None:
    assert (await Site().log_in("chief", "chief-secret", to)).headers["location"] == "/"


async def test_a_large_login_is_refused() -> None:
    answer = await Site().log_in("chief", "x" * 20_000)
    assert answer.status == 413


async def test_an_account_that_may_only_read_sees_no_acts() -> None:
    """Neither a link, nor a form, nor the effect of one, whatever its token."""
    site = Site()
    reader, chief = await site.cookie_of(READER), await site.cookie_of(CHIEF)
    links = ("/topic/edit", "/group/edit", "/group/delete", "/release", "/reset")
    for path, offered in (("/topics", links[:0]), ("/groups", links[1:2]), ("/group?group=shop", links[1:])):
        read, all_of_it = (await site.get(path, reader)).text, (await site.get(path, chief)).text
        assert [link for link in links if f'href="{link}' in read] == []
        assert [link for link in links if f'href="{link}' in all_of_it] == list(offered)
    for path in ACTS:
        answer = await site.get(path, reader)
        assert (answer.status, "may look, and change nothing" in answer.text) == (403, True)
        assert 'name="token"' not in answer.text
        assert (await site.post(path.partition("?")[0], reader, token="token")).status == 403
        assert (await site.get(path, chief)).status != 403
    assert [line["event"] for line in site.log.lines] == ["console_login"] * 2


async def test_the_log_says_whose_change_it_was() -> None:
    """Without a login it has the address alone."""
    site = Site()
    for user in (SimpleUser("chief"), SimpleUser("")):
        log_change(
            Request({"type": "http", "app": site.app, "user": user, "client": ("10.0.0.1", 5)}), "send", topic="T"
        )
    line = {"event": "console_change", "act": "send", "topic": "T", "peer": "10.0.0.1"}
    assert site.log.lines == [line | {"account": "chief"}, line]


# The command -------------------------------------------------------------------------------------------------


async def test_elsewhere_than_on_loopback_a_login_is_wanted() -> None:
    """Or to say that it is not."""
    with pytest.raises(UsageError, match="--login FILE asks for an account, --no-login leaves the pages open"):
        await console(NOWHERE, "192.0.2.1", 0, None)
    with pytest.raises(CliError, match="cannot listen on"):
        await console(NOWHERE, "192.0.2.1", 0, None, no_login=True)


def test_accounts_of_a_file(tmp_path: Path) -> None:
    """Of the brokers' own; administrators may change something."""
    path = tmp_path / "plain_acl.yml"
    with pytest.raises(CliError, match="cannot read"):
        login_accounts(path)
    for text, says in (("", "has no accounts"), ("accounts: [{accessKey: x}]", "plain_acl.yml: "), ("[", "not YAML")):
        path.write_text(text)
        with pytest.raises(CliError, match=says):
            login_accounts(path)
    rows = (
        "- {accessKey: chief-of-it, secretKey: secret-1, admin: true}\n- {accessKey: a-reader, secretKey: secret-2}\n"
    )
    path.write_text(f"accounts:\n{rows}- {{accessKey: a-reader, secretKey: secret-3, admin: true}}\n")
    assert login_accounts(path) == {
        "chief-of-it": LoginAccount("chief-of-it", "secret-1", may_act=True),
        "a-reader": LoginAccount("a-reader", "secret-2"),
    }
