"""Pages while one broker is silent: they come soon, show what the other one has, and name the one that is missing."""

from collections.abc import Awaitable, Callable

import pytest

from lockstep.client import AdminClient
from lockstep.console.collector import Collector
from lockstep.console.console import Console
from lockstep.console.pages.questions import dead_letters
from lockstep.protocol.bodies.admin import TopicOffset, TopicStatsTable
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import QueryMessageResponseHeader
from lockstep.protocol.headers.messaging import OffsetResponseHeader, PullMessageResponseHeader
from lockstep.protocol.names import dead_letter_topic
from tests.client.messages import stored_bytes
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at
from tests.console.pages_inside import ask, make_console
from tests.console.readings import GROUP, NOW_MS
from tests.rows import by_row

STATS = RequestCode.GET_TOPIC_STATS_INFO
KEY = f"/key?topic={TOPIC}&key=k"
PAGES = [
    f"/topic?topic={TOPIC}",
    f"/messages?topic={TOPIC}",
    f"/messages?topic={TOPIC}&by=key&text=k",
    f"/messages?topic={TOPIC}&by=id&text=u",
    f"/messages?topic={TOPIC}&by=time&text=1",
    KEY,
]


async def two_brokers(stage: Stage) -> tuple[FakeBroker, FakeBroker]:
    """The second one has a message, in the only queue of each; it can be found by every page of PAGES."""
    silent, answering = await stage.broker("broker-a"), await stage.broker("broker-b")
    stage.route_to({"broker-a": 1, "broker-b": 1})
    for code in (STATS, RequestCode.QUERY_MESSAGE):
        silent.answers(code, None)
    answering.answers(STATS, TopicStatsTable({queue_at(0, "broker-b"): TopicOffset(0, 1, NOW_MS)}))
    stored = stored_bytes(0, topic=TOPIC, properties={"KEYS": "k", "UNIQ_KEY": "u"})

    def pulled(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.SUCCESS, PullMessageResponseHeader(0, 1, 0, 1), stored)

    def found(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.SUCCESS, QueryMessageResponseHeader(0, 0), stored)

    def searched(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(0))

    answering.on |= {
        RequestCode.PULL_MESSAGE: pulled,
        RequestCode.QUERY_MESSAGE: found,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: searched,
    }
    return silent, answering


async def with_console(
    stage: Stage, use: Callable[[Console], Awaitable[None]], collector: Collector | None = None
) -> int:
    """Use a console of the cluster on the stage. Returns how many ms of virtual time it took."""
    name_server = stage.brokers[1].name_server
    async with AdminClient(name_server=name_server, runtime=stage.client, log=stage.log) as admin:
        await admin.brokers()
        began_ms = stage.world.elapsed_ms
        await use(make_console(collector, admin, stage.client))
        return stage.world.elapsed_ms - began_ms


@by_row("path", PAGES)
@on_stage
async def test_a_page_waits_once_for_a_silent_broker(stage: Stage, path: str) -> None:
    """However many questions it has, it comes after about 2 s, and says whose messages are missing."""
    await two_brokers(stage)

    async def look(console: Console) -> None:
        page = await ask(console, path)
        assert page.status == 200
        assert "broker-b:0" in page.text
        assert "Broker broker-a is left out: no answer within 2 s." in page.text

    assert await with_console(stage, look) < 2500


def gone_a() -> Collector:
    collector = Collector()
    collector.broker_failed("broker-a", "10.0.0.1:10911", "stopped", NOW_MS)
    return collector


@by_row("path", PAGES)
@on_stage
async def test_a_page_does_not_wait_for_a_broker_that_is_known_to_be_gone(stage: Stage, path: str) -> None:
    """The console has asked it all the time: the page names it without one question more."""
    silent, _ = await two_brokers(stage)

    async def look(console: Console) -> None:
        page = await ask(console, path)
        assert "broker-b:0" in page.text
        assert "What broker broker-a has is missing here." in page.text
        assert page.text.count("stopped") == 1, "the top of each page says why, and since when"

    assert await with_console(stage, look, gone_a()) < 500
    assert not silent.requests(STATS) + silent.requests(RequestCode.QUERY_MESSAGE)


@by_row("path", PAGES)
@on_stage
async def test_a_page_without_a_gap_names_no_broker(stage: Stage, path: str) -> None:
    """When both brokers answer."""
    silent, _ = await two_brokers(stage)
    silent.answers(STATS, TopicStatsTable({}))
    silent.answers(RequestCode.QUERY_MESSAGE, ResponseCode.QUERY_NOT_FOUND)

    async def look(console: Console) -> None:
        assert "is missing here" not in (await ask(console, path)).text

    assert await with_console(stage, look) < 500


@pytest.mark.parametrize("path", PAGES[:2])
@on_stage
async def test_when_no_broker_answers_there_is_nothing_to_show(stage: Stage, path: str) -> None:
    """The error of the first broker is the page."""
    silent, answering = await two_brokers(stage)
    answering.answers(STATS, ResponseCode.NO_PERMISSION)

    async def look(console: Console) -> None:
        page = await ask(console, path)
        assert page.status == 502
        assert "no answer within 2 s" in page.text

    await with_console(stage, look)
    silent.answers(STATS, ResponseCode.SYSTEM_ERROR)

    async def look_again(console: Console) -> None:
        page = await ask(console, path)
        assert page.status == 502
        assert silent.address in page.text

    await with_console(stage, look_again)


@on_stage
async def test_dead_letters_are_not_counted_in_part(stage: Stage) -> None:
    """A number without those of a silent broker would be wrong; nobody waits for one that is known to be gone."""
    _, answering = await two_brokers(stage)
    dead = dead_letter_topic(GROUP)
    stage.route_to({"broker-a": 1, "broker-b": 1}, dead)
    answering.answers(STATS, TopicStatsTable({queue_at(0, "broker-b", dead): TopicOffset(0, 3, NOW_MS)}))

    async def count(console: Console) -> None:
        assert await dead_letters(console, GROUP) is None

    assert await with_console(stage, count) < 2500
    assert await with_console(stage, count, gone_a()) < 500

    async def count_all(console: Console) -> None:
        assert await dead_letters(console, GROUP) == 3

    stage.route_to({"broker-b": 1}, dead)
    await with_console(stage, count_all)
