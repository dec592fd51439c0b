"""The console over Java's members, on either broker: each page answers, and says what the broker cannot tell."""

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, Message, MessageExt
from tests.commands import Lockstep
from tests.console.pages_inside import ask, pages_of
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server, apache_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import PythonStory, eventually

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def test_the_pages(
    either: Server, drivers: Drivers, tmp_path: Path, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Two orderly members of Java: Order shows which of them has each queue; every other page answers too."""
    version = version_of("java", "rocketmq-client")
    interop_row("Lockstep", "0.1.0", f"console -> {either.name} {either.version}", f"Java {version} members")
    topic, group = await either.create_topic(fresh_topic(), 4), fresh_group()
    story = PythonStory(either, tmp_path, interop_row)
    who: dict[str, Any] = {"name_server": either.name_server, "topic": topic, "group": group}
    members = [drivers.java("OrderlyConsumer", **who) for _ in range(2)]
    for member in members:
        await member.wait_for("ready", 60)
    await story.send_keyed(topic, 100)
    await story.drain(topic, group)
    with Lockstep(either.name_server).start("console", "--port", "0") as console:
        line = await asyncio.to_thread(console.error_line)
        assert "console is at" in line, line
        site = line.partition("console is at ")[2].split("/ ")[0]

        async def owners_are_shown() -> bool:
            _, page = await asyncio.to_thread(get, f"{site}/?group={group}")
            return all(f"@driver-{member.pid}" in page for member in members)

        await eventually(owners_are_shown, "Order shows both members as owners")

        async def group_is_read() -> bool:
            return (await asyncio.to_thread(get, f"{site}/group?group={group}"))[0] == 200

        await eventually(group_is_read, "the console has read the group")
        paths = ("/groups", f"/group?group={group}", "/topics", f"/topic?topic={topic}", "/brokers", "/doctor")
        for path in (*paths, f"/messages?topic={topic}"):
            status, page = await asyncio.to_thread(get, site + path)
            assert (status, "<main" in page) == (200, True), (path, page[:2000])

        async def members_are_shown() -> bool:
            _, page = await asyncio.to_thread(get, f"{site}/group?group={group}")
            return all(f"@driver-{member.pid}" in page for member in members)

        await eventually(members_are_shown, "the group's page shows both members")
        status, page = await asyncio.to_thread(get, f"{site}/release?group={group}&topic={topic}&queue=0")
        assert status != 200, page[:2000]


@pytest.fixture(scope="module")
def apache5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker of RocketMQ 5."""
    with apache_server(tmp_path_factory.mktemp("apache5"), part="apache5") as server:
        yield server


@pytest.mark.parametrize("name", ["apache", "apache5"])
async def test_charts(
    request: pytest.FixtureRequest,
    name: str,
    tmp_path: Path,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
) -> None:
    """RocketMQ's brokers say what comes and goes of a group, its topic and themselves; no letter is missing."""
    server: Server = request.getfixturevalue(name)
    interop_row("Lockstep", "0.1.0", f"console -> {server.name} {server.version}", "charts over time")
    topic, group = await server.create_topic(fresh_topic(), 4), fresh_group()
    story = PythonStory(server, tmp_path, interop_row)

    async def listener(_messages: list[MessageExt], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        return ConsumeOrderlyStatus.SUCCESS

    console = Lockstep(server.name_server).start("console", "--port", "0")
    async with story.consumer(topic, group, listener), story.producer() as producer:
        with console:
            site = (await asyncio.to_thread(console.error_line)).partition("console is at ")[2].split("/ ")[0]

            async def flows() -> bool:
                for number in range(10):
                    await producer.send(Message(topic, b"x"), sharding_key=f"key-{number}")
                paths = f"/group?group={group}", f"/topic?topic={topic}", "/brokers"
                pages = [(await asyncio.to_thread(get, f"{site}{path}"))[1] for path in paths]
                most = [re.findall(r"(?:in|out): \S+ now, ([\d.,]+) at most", page) for page in pages]
                return all(len(of) == 2 and "0.00" not in of for of in most)

            await eventually(flows, "messages come and go on each page", 90)
            for path in (f"/?group={group}&minutes=1", f"/group?group={group}&minutes=1"):
                _, page = await asyncio.to_thread(get, site + path)
                assert 'aria-hidden="true">A</span>' in page


@pytest.mark.parametrize("name", ["apache", "apache5"])
async def test_changes(
    request: pytest.FixtureRequest, name: str, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Topics and groups are made, changed and deleted, and a message is sent; what a broker lacks is told in words."""
    server: Server = request.getfixturevalue(name)
    interop_row("Lockstep", "0.1.0", f"console -> {server.name} {server.version}", "topics, groups, a message")
    topic, group, is_new = fresh_topic(), fresh_group(), name == "apache5"
    async with pages_of(server.name_server) as pages:
        form = {"topic": topic, "read": "2", "write": "2", "perm": "rw"}
        made = form | {"type": "FIFO"} if is_new else form
        assert "Done: " in (await pages.post("/topic/edit", **made)).text

        async def is_known() -> bool:
            return topic in await pages.admin.topics()

        await eventually(is_known, "the name server knows the topic")
        sent = await pages.post("/send", topic=topic, key="k", tag="red", body="by hand")
        assert "Stored in queue" in sent.text, sent.text
        link = sent.text.partition('id="stored" href="')[2].partition('"')[0].replace("&amp;", "&")
        message = (await ask(pages.console, link)).text
        assert "by hand" in message
        assert "The way of key k" in message
        assert "of-key" in message
        path, _, query = link.partition("?")
        none = await ask(pages.console, f"{path}/of-key?{query}&key=k&to=next")
        assert "has no later message of key k" in none.text
        tail = await pages.get("/messages", topic=topic)
        assert "by hand" in tail.text
        assert re.search(r"<b>≈ \d+ B</b>", (await pages.get("/topic", topic=topic)).text)
        look = await pages.get("/topic/edit", **form | {"read": "4", "perm": "r"})
        assert "2 → 4" in look.text
        assert "Done: " in (await pages.post("/topic/edit", **form | {"read": "4", "perm": "r"})).text
        (config,) = (await pages.admin.topic_configs(topic)).values()
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 2, 4)
        assert (config.message_type == "FIFO") is is_new
        closed = await pages.post("/send", topic=topic, body="too late")
        assert closed.status == 400
        assert "Not sent: " in closed.text
        refused = await pages.post("/topic/edit", **form | {"perm": "r", "attributes": "+colour=red"})
        assert ("refuses: " in refused.text) is is_new  # 4 knows no attributes, and leaves them out
        put = await pages.post("/group/edit", group=group, order="yes", retries="3")
        assert "Done: " in put.text
        assert ("does not keep all of it" in put.text) is not is_new
        (settings,) = (await pages.admin.group_configs())[group]
        assert settings.retry_max_times == 3
        kept = await pages.admin.group_config(group)
        assert (kept is not None) is is_new
        deleted = await pages.post("/group/delete", group=group, name=group)
        assert "Done: " in deleted.text
        # RocketMQ 5 makes the group again in the same request, with its defaults.
        left = [one.retry_max_times for one in (await pages.admin.group_configs()).get(group, ())]
        assert left == ([16] if is_new else [])
        assert ("made the group again with its defaults" in deleted.text) is is_new
        assert "with 1 messages" in (await pages.get("/topic/delete", topic=topic)).text
        assert f"Done: {topic}." in (await pages.post("/topic/delete", topic=topic, name=topic)).text
        assert topic not in await pages.admin.topics()
