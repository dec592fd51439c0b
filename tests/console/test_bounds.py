"""A broker that answers with lists without end does not fill the console; a page and the log say what was left out."""

from collections.abc import Iterable
from typing import Any, Self

import pytest

from lockstep.client.admin.budget import AnswerBudget, AnswerTooLargeError
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.groups import GroupProgress
from lockstep.client.errors import ClientError
from lockstep.console.bounds import LOOK_BYTES_MAX, READ_BYTES_MAX, TEXT_MAX, Limits, size_of
from lockstep.console.collector import Collector
from lockstep.console.gather import gather_once
from lockstep.console.model import BrokerState, GroupReading
from lockstep.protocol.bodies.admin import ConsumeStats, OffsetWrapper
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.client import ConsumerConnection, ConsumerRunningInfo, ProcessQueueInfo
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.errors import RemotingError
from tests.console.locks_made import GROUP, NOW_MS, change, queue_at, row
from tests.console.pages_inside import NOWHERE, ask, make_console
from tests.console.readings import reading
from tests.remoting.helpers import RecordingLog
from tests.rows import by_row

MIB = 1024 * 1024


def settings_of(log: RecordingLog) -> list[str]:
    """Of the lines `limit_met`."""
    return [fields["setting"] for _, event, fields in log.events if event == "limit_met"]


def limited(**options: Any) -> tuple[Collector, RecordingLog]:
    log = RecordingLog()
    return Collector(limits=Limits(log), **options), log


def names_of(collector: Collector) -> list[str]:
    return [one.name for one in collector.limits.recent(NOW_MS)]


def answer(body: bytes, kind: SerializeType = SerializeType.JSON) -> RemotingCommand:
    reply = RemotingCommand(0, body=body)
    reply.serialize_type = kind
    return reply


# The budget of a task ----------------------------------------------------------------------------------------


def test_the_answers_to_a_task_are_counted_together() -> None:
    """The one that is too much is refused, and a smaller one still fits."""
    budget = AnswerBudget(1000)
    budget.take("b:1", RequestCode.GET_CONSUME_STATS, answer(b"1" * 600))
    with pytest.raises(AnswerTooLargeError, match=r"b:1 answered GET_CONSUME_STATS \(208\) with 401 bytes"):
        budget.take("b:1", RequestCode.GET_CONSUME_STATS, answer(b"1" * 401))
    budget.take("b:1", RequestCode.GET_CONSUME_STATS, answer(b"1" * 400))


@pytest.mark.parametrize(("part", "kind"), [(b"[]", SerializeType.JSON), (b"\x90", SerializeType.MSGPACK)])
def test_an_answer_of_empty_lists_is_refused_before_it_is_decoded(part: bytes, kind: SerializeType) -> None:
    """Each takes 56 bytes of memory: one may come for 64 bytes of the budget."""
    budget = AnswerBudget(6400)
    budget.take("b:1", RequestCode.LIST_LOCKS, answer(part * 100, kind))
    with pytest.raises(AnswerTooLargeError, match="101 objects and lists"):
        budget.take("b:1", RequestCode.LIST_LOCKS, answer(part, kind))


def test_the_progress_of_ten_thousand_queues_fits() -> None:
    """In JSON, which is the longer form."""
    queues_of = [queue_at(number, "a-topic-with-a-name") for number in range(10_000)]
    offsets = dict.fromkeys(queues_of, OffsetWrapper(10**12, 10**12, NOW_MS))
    body = encode_body(ConsumeStats(offsets), SerializeType.JSON)
    AnswerBudget(READ_BYTES_MAX).take("b:1", RequestCode.GET_CONSUME_STATS, answer(body))
    queues = dict.fromkeys(offsets, ProcessQueueInfo(locked=True, last_lock_timestamp=NOW_MS))
    infos = encode_body(ConsumerRunningInfo({}, (), queues, {}), SerializeType.JSON)
    assert len(body) + len(infos) < READ_BYTES_MAX / 1.5


# What is kept -------------------------------------------------------------------------------------------------


def test_the_size_of_a_reading_is_that_of_what_is_in_it() -> None:
    """Texts count with their characters, and counting ends at the limit."""
    small = size_of(reading(), MIB)
    assert 2000 < small < 50_000
    assert size_of(reading("g" * 100_000), MIB) > 100_000 + small // 2
    assert size_of([["x" * 1000] * 10**6], 10_000) < 30_000_000


def groups(count: int) -> Iterable[GroupReading]:
    return (reading(f"group-{number}") for number in range(count))


def test_readings_that_take_too_much_memory_are_kept_without_their_queues() -> None:
    """The groups before them stay whole; their lag is not shown as nothing."""
    one = size_of(reading("group-0"), MIB)
    collector, log = limited(readings_bytes_max=3 * one + one // 2)
    for each in groups(5):
        collector.group(each, NOW_MS)
    assert [bool(collector.groups[f"group-{number}"].reading.offsets) for number in range(5)] == [True] * 3 + [
        False
    ] * 2
    assert not collector.flows.groups["group-4"].history
    assert names_of(collector) == ["readings"]
    assert settings_of(log) == ["console.readings"]


def test_a_group_that_is_gone_or_read_again_makes_room() -> None:
    """Only what is kept counts."""
    one = size_of(reading("group-0"), MIB)
    collector, log = limited(readings_bytes_max=one + one // 2)
    for _ in range(5):
        collector.group(reading("group-0"), NOW_MS)
    collector.forget_groups([])
    collector.group(reading("group-1"), NOW_MS)
    assert collector.groups["group-1"].reading.offsets
    assert not log.events


LONG = "x" * (TEXT_MAX + 1)


@pytest.mark.parametrize(
    "bad",
    [
        row("a", group=LONG),
        row("a", queue=queue_at(0, LONG)),
        row("a", queue=queue_at(0)._replace(broker_name=LONG)),
        row(LONG),
    ],
    ids=["group", "topic", "broker", "owner"],
)
def test_rows_with_endless_names_are_left_out(bad: LockTableRow) -> None:
    """The others of the same answer are kept."""
    collector, log = limited()
    collector.locked("broker-a", [bad, row("b", queue=queue_at(1))], NOW_MS)
    assert list(collector.queues) == [(GROUP, queue_at(1))]
    assert names_of(collector) == ["names"]
    assert len(settings_of(log)) == 1


@pytest.mark.parametrize(("old", "new", "cause"), [(LONG, "b", "granted"), ("a", LONG, "granted"), ("a", "b", LONG)])
def test_changes_with_endless_names_are_left_out(old: str, new: str, cause: str) -> None:
    """They would be kept for 15 minutes."""
    collector, _ = limited()
    collector.changed([change(NOW_MS - 5, old, new, cause)], 0, NOW_MS)
    assert not collector.queues
    assert names_of(collector) == ["names"]


def test_counters_of_a_broker_are_bounded() -> None:
    """The first 100 by name."""
    collector, _ = limited()
    counts = {f"fence.{number:06}": 1 for number in range(100_000)} | {"x" * (TEXT_MAX + 1): 1}
    collector.broker_answered(BrokerState("broker-a", NOWHERE, fenced_counts=counts), NOW_MS)
    state = collector.broker("broker-a")
    assert state is not None
    assert list(state.fenced_counts or {}) == [f"fence.{number:06}" for number in range(100)]
    assert names_of(collector) == ["names"]


def test_the_text_of_an_error_is_bounded() -> None:
    """A broker chooses the remark of a refusal."""
    collector, _ = limited()
    collector.broker_failed("broker-a", NOWHERE, "x" * MIB, NOW_MS)
    state = collector.broker("broker-a")
    assert state is not None
    assert len(state.error) == TEXT_MAX


def test_histories_of_all_queues_together_are_bounded() -> None:
    """The queues that changed longest ago lose theirs; what is owned now stays."""
    collector, _ = limited(history_max=1000)
    for number in range(20):
        for turn in range(60):
            at_ms = NOW_MS - 60_000 + turn
            collector.changed([change(at_ms, None, f"c{turn}", "granted", queue=queue_at(number))], 0, NOW_MS)
    collector.turn(NOW_MS)
    lengths = [len(one.marks) for one in collector.queues.values()]
    assert sum(len(one.marks) + len(one.spans) + len(one.flaps_ms) for one in collector.queues.values()) <= 1000
    assert (lengths[0], lengths[-1]) == (0, 60)
    assert all(one.open_span is not None for one in collector.queues.values())
    assert names_of(collector) == ["history"]


def test_more_queues_and_groups_than_the_bounds_are_told() -> None:
    """The oldest go."""
    collector, log = limited(queues_max=10)
    collector.locked("broker-a", [row("a", queue=queue_at(number)) for number in range(11)], NOW_MS)
    for number in range(1001):
        collector.group(GroupReading(f"g{number}"), NOW_MS)
    assert names_of(collector) == ["groups", "queues"]
    assert settings_of(log) == ["console.queues", "console.groups"]


def test_a_limit_is_shown_for_a_quarter_of_an_hour_and_logged_once_a_minute() -> None:
    """It may be met each half second."""
    log = RecordingLog()
    limits = Limits(log)
    for number in range(100):
        limits.met("names", TEXT_MAX, NOW_MS + number, "p" * 10_000)
    assert len(settings_of(log)) == 1
    (shown,) = limits.recent(NOW_MS + 900_000)
    assert (shown.at_ms, len(shown.peer)) == (NOW_MS + 99, TEXT_MAX)
    assert limits.recent(NOW_MS + 900_099) == []


# What is asked ------------------------------------------------------------------------------------------------


class Endless(AdminClient):
    """One broker of Apache's; what `large` names is too large."""

    large: tuple[str, ...] = ()
    brokers_count = 1
    group_names: tuple[str, ...] = (GROUP,)
    bounds: list[int] | None = None

    def bounded(self, bytes_max: int) -> Self:
        self.bounds = [*(self.bounds or []), bytes_max]
        return self

    def _if_large(self, name: str) -> None:
        if name in self.large:
            raise AnswerTooLargeError(f"{name} is too large")

    async def brokers(self) -> list[BrokerData]:
        self._if_large("brokers")
        return [BrokerData(f"broker-{number}", "c", {0: NOWHERE}) for number in range(self.brokers_count)]

    def at(self, broker: BrokerData) -> Self:
        return self

    async def is_lockstep(self, address: str) -> bool:
        return False

    async def broker_runtime(self, address: str) -> dict[str, str]:
        self._if_large("runtime")
        return {}

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        self._if_large("groups")
        return {name: ["orders"] for name in self.group_names}

    async def groups_with_retry_topic(self) -> dict[str, list[str]]:
        self._if_large("topics")
        return {}

    async def members(self, group: str) -> ConsumerConnection | None:
        return reading().members

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        self._if_large("progress")
        return GroupProgress(reading().offsets, 0.0)

    async def running_infos(
        self, group: str, client_ids: Iterable[str], *, timeout_ms: int = 0
    ) -> dict[str, ConsumerRunningInfo | RemotingError | ProtocolError | AnswerTooLargeError]:
        assert timeout_ms == 1500
        told = reading().infos
        return {
            name: AnswerTooLargeError("info is too large") if "info" in self.large else told[name]
            for name in client_ids
        }


def endless(**changes: Any) -> Endless:
    admin = Endless(name_server=NOWHERE)
    vars(admin).update(changes)
    return admin


@by_row("what", ["brokers", "runtime", "groups", "topics", "progress", "info"])
async def test_an_answer_that_is_too_large_is_told_on_each_page(what: str) -> None:
    """What else the broker says is shown; nothing ends the console."""
    console = make_console(Collector(limits=Limits(RecordingLog())), endless(large=(what,)))
    await gather_once(console)
    page = await ask(console, "/groups")
    assert page.status == 200
    assert f"{what} is too large. The last time was" in page.text
    (met,) = console.collector.limits.recent(console.runtime.now_ms())
    assert met.maximum == (LOOK_BYTES_MAX if what in ("brokers", "runtime") else READ_BYTES_MAX)
    kept = console.collector.groups.get(GROUP)
    assert (kept is not None) is (what in ("topics", "info"))


async def test_whole_answers_meet_no_bound() -> None:
    """Members, progress and running info are there, and each task was asked with a bound."""
    admin = endless()
    console = make_console(Collector(limits=Limits(RecordingLog())), admin)
    await gather_once(console)
    assert console.collector.groups[GROUP].reading.infos == reading().infos
    assert console.collector.groups[GROUP].reading.offsets == reading().offsets
    assert console.collector.limits.recent(console.runtime.now_ms()) == []
    assert len(admin.bounds or ()) == 5  # the brokers, one look, the groups, the topics, one group


async def test_the_console_watches_256_brokers() -> None:
    """A name server may name any number."""
    console = make_console(Collector(limits=Limits(RecordingLog())), endless(brokers_count=300, group_names=()))
    await gather_once(console)
    assert len(console.collector.brokers()) == 256
    assert "more brokers" in (await ask(console, "/brokers")).text


async def test_groups_beyond_ten_thousand_and_with_endless_names_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are."""
    monkeypatch.setattr("lockstep.console.gather._GROUPS_MAX", 3)
    names = ("x" * (TEXT_MAX + 1), "a", "b", "c", "d")
    console = make_console(Collector(limits=Limits(RecordingLog())), endless(group_names=names))
    await gather_once(console)
    assert list(console.collector.groups) == ["a", "b", "c"]


async def test_a_page_asks_with_a_bound_of_its_own() -> None:
    """Each time anew: what one page was answered does not count for the next."""
    client = AdminClient(name_server=NOWHERE)
    console = make_console(admin=client)
    assert console.admin is not console.admin
    reply = answer(b"1" * 60 * MIB)
    for _ in range(2):
        console.admin._take("b:1", RequestCode.GET_TOPIC_STATS_INFO, reply)
    page = console.admin
    page._take("b:1", RequestCode.GET_TOPIC_STATS_INFO, reply)
    with pytest.raises(ClientError, match="at most"):
        page._take("b:1", RequestCode.GET_TOPIC_STATS_INFO, reply)
