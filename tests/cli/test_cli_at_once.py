"""Commands that ask about many topics, groups or queues ask about several at once, and print them in their order."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.cli.group.command import describe_group, list_groups
from lockstep.cli.group.options import GroupWatchOptions
from lockstep.cli.group.watch import watch_group
from lockstep.cli.message.tail import tail_messages
from lockstep.cli.offset import show_offsets
from lockstep.cli.options import TailOptions
from lockstep.cli.output import OutputFormat
from lockstep.cli.topic import list_topics, topic_stats
from lockstep.client import AdminClient, NotLockstepError
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.admin.messages import QueueSlice
from lockstep.protocol.bodies.admin import OffsetWrapper, TopicOffset
from lockstep.protocol.bodies.broker import QueueData, TopicRouteData
from lockstep.protocol.model import MessageQueue
from tests.client.gate import Gate

NOWHERE, JSON = "127.0.0.1:1", OutputFormat.JSON
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
ROUTE = TopicRouteData((QueueData("broker-a", 4, 4, 6),), ())
Rows = Callable[[], Any]


async def _no_locks(*_: object) -> Any:
    raise NotLockstepError("Apache's")


def gives(answer: Any) -> Any:
    return Gate(1, answer)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the admin client other methods."""

    def change(**methods: Any) -> None:
        for name, method in methods.items():
            monkeypatch.setattr(AdminClient, name, staticmethod(method))

    change(
        route=gives(ROUTE),
        topics=gives(["orders"]),
        topic_stats=gives({queue: TopicOffset(0, 9, 1) for queue in QUEUES}),
        members=gives(None),
        all_groups=gives({"g": ["orders"]}),
        progress=gives(GroupProgress({queue: OffsetWrapper(9, 0, 1) for queue in QUEUES}, 0.0)),
        list_locks=_no_locks,
        list_deliveries=gives(None),
        consumer_ids=gives([]),
        running_infos=gives({}),
    )
    return change


@pytest.fixture
def rows(capfdbinary: pytest.CaptureFixture[bytes]) -> Rows:
    """What was printed as JSON since the last call."""
    return lambda: json.loads(capfdbinary.readouterr().out)


async def test_routes_of_topics(cluster: Callable[..., None], rows: Rows) -> None:
    """`topic list`"""
    cluster(user_topics=gives(["c", "b", "a"]), route=Gate(3, ROUTE))
    await list_topics(NOWHERE, False, JSON)
    assert [(row["topic"], row["queues"]) for row in rows()] == [("c", 4), ("b", 4), ("a", 4)]


async def test_times_of_queues(cluster: Callable[..., None], rows: Rows) -> None:
    """`topic stats`"""
    cluster(earliest_store_time_ms=Gate(4, 5))
    await topic_stats(NOWHERE, "orders", JSON)
    assert [(row["queue_id"], row["earliest_timestamp"]) for row in rows()] == [(number, 5) for number in range(4)]


async def test_members_of_groups(cluster: Callable[..., None], rows: Rows) -> None:
    """`group list`: a member that does not answer holds up no other group."""
    cluster(all_groups=gives({"b": [], "a": []}), consumer_ids=Gate(2, ["c"]), running_infos=Gate(2, {"c": None}))
    await list_groups(NOWHERE, JSON)
    assert [(row["group"], row["members"]) for row in rows()] == [("b", 1), ("a", 1)]


async def test_offsets_of_queues(cluster: Callable[..., None], rows: Rows) -> None:
    """`offset show`, `group describe` and `group watch`."""
    cluster(consumer_offset=Gate(4, 3))
    await show_offsets(NOWHERE, "g", "orders", JSON)
    assert [(row["queue_id"], row["lag"]) for row in rows()] == [(number, 6) for number in range(4)]
    cluster(consumer_offset=Gate(4, 3), max_offset=Gate(4, 9))
    await describe_group(NOWHERE, "g", "orders", JSON)
    assert [row["queue_id"] for row in rows()["queues"]] == [0, 1, 2, 3]
    cluster(consumer_offset=Gate(4, 3))
    await watch_group(GroupWatchOptions(name_server=NOWHERE, output=JSON, group="g", topic="orders", count=1))
    assert [row["committed_offset"] for row in rows()["queues"]] == [3, 3, 3, 3]


async def test_starts_of_queues(cluster: Callable[..., None]) -> None:
    """`message tail` from a time: where each queue begins, and its first message."""
    search, read = Gate(4, 0), Gate(4, QueueSlice([], 9, 0, 9))
    cluster(search_offset=search, read_queue=read)
    await tail_messages(TailOptions(name_server=NOWHERE, output=JSON, topic="orders", begin="1h ago"))
    assert (search.passed, read.passed) == (4, 4)
