"""Several clusters beside each other: each has its own pages, what was collected of it, and its account."""

import re
from pathlib import Path

import pytest

from lockstep.cli.console import contexts_named
from lockstep.cli.context.contexts import Context, ContextFile, Contexts
from lockstep.cli.output import CliError, UsageError
from lockstep.client.admin.client import AdminClient
from lockstep.console.app import make_app
from lockstep.console.bounds import Limits
from lockstep.console.collector import Collector
from lockstep.console.console import Cluster, Console
from lockstep.console.render import PAGES
from lockstep.protocol.signature import Credentials
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import StdlibLog
from tests.console.pages_inside import NOWHERE, Answer, ask_app
from tests.console.readings import NOW_MS, reading
from tests.rows import by_row

NAMES = ("east", "west")


def console_of_one(name: str) -> Console:
    """A cluster with one group, which has the name of the cluster in its own."""
    collector = Collector()
    collector.group(reading(f"group-{name}"), NOW_MS)
    admin = AdminClient(name_server=NOWHERE)
    return Console(Cluster(NOWHERE, name), collector, admin, AsyncioRuntime(), "token", clusters=NAMES)


async def page(path: str, **more: str) -> Answer:
    return await ask_app(make_app(*map(console_of_one, NAMES)), path, headers=more)


@by_row("name, other", [NAMES, NAMES[::-1]])
async def test_each_cluster_has_its_own_pages(name: str, other: str) -> None:
    """With links to its own alone, but for the switch, which leads to the same page of another."""
    answer = await page(f"/cluster/{name}/groups")
    assert f"group-{name}" in answer.text
    assert f"group-{other}" not in answer.text
    assert f'<a href="/cluster/{name}/groups" aria-current="true">{name}</a>' in answer.text
    assert f'<a href="/cluster/{other}/groups">{other}</a>' in answer.text
    assert f'data-live="/cluster/{name}/events"' in answer.text
    links = re.findall(r'(?:href|action|src)="(/[^"]*)"', answer.text.replace(f'"/cluster/{other}/groups"', ""))
    assert links
    assert all(link.startswith(f"/cluster/{name}/") for link in links), links


@by_row("path", PAGES.values())
async def test_every_page_of_a_cluster_answers(path: str) -> None:
    """Its style and its script too."""
    answer = await page(f"/cluster/west{path}")
    assert answer.status in (200, 502)
    for address in re.findall(r'"(/[^"]*/static/[^"]*)"', answer.text):
        assert (await page(address)).status == 200


async def test_where_a_redirect_leads() -> None:
    """To the same cluster; the first address to the first one."""
    assert (await page("/")).headers["location"] == "/cluster/east/"
    assert (await page("/cluster/west/groups?lang=zh")).headers["location"] == "/cluster/west/groups"
    answer = await ask_app(
        make_app(*map(console_of_one, NAMES)), "/cluster/west/doctor", method="POST",
        headers={"origin": "http://127.0.0.1:8088"},
    )  # fmt: skip
    assert answer.headers["location"] == "/cluster/west/doctor"
    for path in ("/cluster/north/", "/groups", "/cluster/"):
        assert (await page(path)).status == 404


async def test_one_cluster_has_short_addresses() -> None:
    """And no switch."""
    console = console_of_one("")
    console.clusters = ()
    answer = await ask_app(make_app(console), "/groups")
    assert 'href="/groups"' in answer.text
    assert "/cluster/" not in answer.text


async def test_the_guard_is_before_all_of_them() -> None:
    """A foreign Host gets nothing, wherever it asks."""
    for path in ("/", "/cluster/west/", "/cluster/west/events"):
        assert (await page(path, host="evil.example")).status == 400


async def test_a_text_that_looks_like_a_link_stays() -> None:
    """Only links of templates begin at the cluster; what a broker says is shown as it said it."""
    console = console_of_one("west")
    console.collector.group(reading('x" href="/y'), NOW_MS)
    text = (await ask_app(make_app(console), "/cluster/west/groups")).text
    assert "x&#34; href=&#34;/y" in text


def test_collectors_share_their_bounds() -> None:
    """Two clusters keep together what one may keep."""
    whole, half = (Collector.one_of(count, Limits(StdlibLog("test"))) for count in (1, 2))
    for name in ("_queues_max", "_readings_bytes_max", "_history_max"):
        assert getattr(whole, name) == 2 * getattr(half, name)
    assert whole.flows._queues_max == 2 * half.flows._queues_max


def test_each_client_has_its_own_account() -> None:
    east = Cluster(NOWHERE, "east", Credentials("one", "secret"))
    assert AdminClient(**east.access)._config.credentials == Credentials("one", "secret")
    assert AdminClient(**Cluster(NOWHERE, "west", tls=False).access)._config.credentials is None


# Contexts ----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    contexts = {name: Context(name_server=f"10.0.0.{number}:9876") for number, name in enumerate(NAMES)}
    ContextFile(OsStorage()).write(Contexts("east", contexts))


@pytest.mark.usefixtures("saved")
def test_contexts_that_are_named() -> None:
    """In the order of the options, or all of them; none without an option."""
    assert contexts_named((), all_contexts=False) == {}
    assert list(contexts_named(("west", "east"), all_contexts=False)) == ["west", "east"]
    assert list(contexts_named((), all_contexts=True)) == ["east", "west"]
    with pytest.raises(CliError, match="no context 'north'"):
        contexts_named(("north",), all_contexts=False)
    many = {f"c{number}": Context(name_server="10.0.0.1:9876") for number in range(17)}
    ContextFile(OsStorage()).write(Contexts(None, many))
    with pytest.raises(UsageError, match="up to 16 clusters"):
        contexts_named((), all_contexts=True)
    ContextFile(OsStorage()).write(Contexts())
    with pytest.raises(CliError, match="there are no contexts"):
        contexts_named((), all_contexts=True)
