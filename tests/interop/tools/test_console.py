"""The console over Java's members, on either broker: each page answers, and says what the broker cannot tell."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Lockstep
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.servers import Server
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
        _, page = await asyncio.to_thread(get, f"{site}/group?group={group}")
        assert all(f"@driver-{member.pid}" in page for member in members)
        status, page = await asyncio.to_thread(get, f"{site}/release?group={group}&topic={topic}&queue=0")
        assert status != 200, page[:2000]
