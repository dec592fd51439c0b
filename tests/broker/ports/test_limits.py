"""Tables that peers can fill have limits: heartbeats, members, groups and topics (wire.md 9)."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.catalog.members import ClientChannel, ConsumerManager, ProducerManager
from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, UnregisterClientRequestHeader
from lockstep.remoting.limit_log import LimitLog
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, RecordingLog, consumer, heartbeat_of, queues_of
from tests.rows import by_row

R = RequestCode
T = SubscriptionData.parse("T", "*", 1)
CHANNEL = ClientChannel("a", 0, 409, NOW_MS)


def limits_met(peer: Peer) -> list[str]:
    return [fields["setting"] for _, event, fields in peer.log.events if event == "limit_met"]


def groups(count: int, *subscriptions: SubscriptionData) -> tuple[Any, ...]:
    return tuple(consumer(f"G{number}", *subscriptions) for number in range(count))


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        ("heartbeat_groups_max", heartbeat_of("a", *groups(2), producers=("P",)), heartbeat_of("a", *groups(4))),
        ("heartbeat_groups_max", heartbeat_of("a"), heartbeat_of("a", producers=("P", "Q", "R", "S"))),
        ("heartbeat_subscriptions_max", heartbeat_of("a", *groups(3, T)), heartbeat_of("a", *groups(4, T))),
        (
            "heartbeat_subscriptions_max",
            heartbeat_of("a", *groups(1, SubscriptionData.parse("T", "A || B"))),
            heartbeat_of("a", *groups(1, SubscriptionData.parse("T", "A || B || C"))),
        ),
        ("groups_per_connection_max", heartbeat_of("a", *groups(3)), heartbeat_of("a", *groups(3), producers=("P",))),
        ("memberships_max", heartbeat_of("a", *groups(3)), heartbeat_of("a", consumer("G9"))),
    ],
)
def test_a_heartbeat_of_more_than_is_allowed_changes_nothing(setting: str, good: Any, bad: Any) -> None:
    """It is refused with a remark that names the setting, and logged; one at the limit is accepted."""
    limits: dict[str, Any] = {setting: 3}
    peer = Peer(**limits)
    assert peer.answer(R.HEART_BEAT, None, good).code == ResponseCode.SUCCESS
    before = (list(peer.broker.members.consumers.groups), list(peer.broker.members.producers.groups))
    reply = peer.answer(R.HEART_BEAT, None, bad)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert f"exceed the broker's setting {setting}: 3" in (reply.remark or "")
    assert (list(peer.broker.members.consumers.groups), list(peer.broker.members.producers.groups)) == before
    assert limits_met(peer) == [setting]


def test_who_leaves_makes_room() -> None:
    """By code 35, and when a connection ends; a member that comes again needs none."""
    peer = Peer(memberships_max=2)
    other = peer.beside()
    peer.heartbeat("a", consumer("G"))
    for _ in range(2):
        assert other.answer(R.HEART_BEAT, None, heartbeat_of("b", producers=("P",))).code == ResponseCode.SUCCESS
    assert peer.heartbeat("a", consumer("G"), consumer("H")).code == ResponseCode.SYSTEM_ERROR
    peer.answer(R.UNREGISTER_CLIENT, UnregisterClientRequestHeader("a", None, "G"))
    assert peer.heartbeat("a", consumer("H")).code == ResponseCode.SUCCESS
    peer.broker.on_closed(other.connection)
    assert peer.heartbeat("a", consumer("H"), consumer("G")).code == ResponseCode.SUCCESS


def test_with_as_many_groups_as_there_may_be_none_is_made_by_use_nor_by_an_administrator() -> None:
    """Heartbeats still work, as for any group without a configuration; pulls and administrators get the reason."""
    peer = Peer(groups_max=8)  # seven are built in
    peer.heartbeat("a", consumer("G", T), consumer("H", T))
    assert (peer.broker.catalog.groups.get("G") is not None, peer.broker.catalog.groups.get("H")) == (True, None)
    assert peer.broker.catalog.topics.get("%RETRY%H") is None
    reply = peer.pull(0, consumer_group="H")
    assert reply is not None
    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "groups_max is 8" in (reply.remark or "")
    for name, code in (("H", ResponseCode.SYSTEM_ERROR), ("G", ResponseCode.SUCCESS)):
        config = SubscriptionGroupConfig(name, retry_max_times=3)
        assert peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config).code == code
    assert limits_met(peer) == ["groups_max"]


def test_a_topic_or_group_with_too_many_queues_for_the_broker_is_refused() -> None:
    """With the setting in the remark; what is there may be changed, and a heartbeat still gets its retry topic."""
    peer = Peer(queues_max=10)
    made = [
        peer.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(topic, "TBW102", nums, nums, 6))
        for topic, nums in (("T", 9), ("S", 2))
    ]
    assert [reply.code for reply in made] == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
    assert made[1].remark == (
        "topic 'S' with 2 queues would be too many: the topics here have 9, and the broker's setting queues_max is 10"
    )
    wide, narrow = (SubscriptionGroupConfig("G", retry_queue_nums=nums) for nums in (2, 1))
    reply = peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, wide)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "2 retry queues would be too many: the broker's setting queues_max is 10"
    assert peer.answer(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, narrow).code == ResponseCode.SUCCESS
    assert peer.heartbeat("a", consumer("G"), consumer("H")).code == ResponseCode.SUCCESS
    assert peer.broker.catalog.topics.queue_count == 11
    assert peer.send("T").code == ResponseCode.SUCCESS
    assert limits_met(peer) == ["queues_max"]


def test_wide_groups_share_the_queues_that_are_left() -> None:
    """Before their retry topics exist."""
    peer = Peer(queues_max=10)
    codes = [
        peer.answer(
            R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig(group, retry_queue_nums=6)
        ).code
        for group in ("G", "G", "H")
    ]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]


@pytest.mark.parametrize("setting", ["lock_queues_per_request_max", "fenced_queues_per_request_max"])
def test_a_request_for_fenced_locks_has_two_bounds(setting: str) -> None:
    """The lower one counts, and the refusal names it. Other locks have one."""
    limits: dict[str, Any] = {setting: 3}
    peer = Peer(lock_mode="fenced", **limits)
    for code in (R.LOCK_BATCH_MQ, R.UNLOCK_BATCH_MQ):
        assert peer.answer(code, None, LockBatchBody("G", "a", queues_of("T", 3))).code == ResponseCode.SUCCESS
        with pytest.raises(BodyError, match=rf"4 queues in one request; at most 3 are allowed \({setting}\)"):
            peer.answer(code, None, LockBatchBody("G", "a", queues_of("T", 4)))
    faithful = Peer(fenced_queues_per_request_max=3)
    body = LockBatchBody("G", "a", queues_of("T", 4))
    assert faithful.answer(R.LOCK_BATCH_MQ, None, body).code == ResponseCode.SUCCESS


def test_a_limit_that_is_met_all_day_is_logged_each_minute() -> None:
    """With how often it was met; another one is logged at once. All times are counted."""
    log = RecordingLog()
    limits = LimitLog(log)
    for after_ms in (0, 1, 59_999, 60_000):
        limits.met("a", 5, NOW_MS + after_ms)
    limits.met("b", 6, NOW_MS)
    assert [(fields["setting"], fields["times"]) for _, _, fields in log.events] == [("a", 1), ("a", 3), ("b", 1)]
    assert limits.counts == {"a": 4, "b": 1}


class CountedConnection(FakeConnection):
    """Counts how often it is looked for in a table."""

    looked_for = 0

    def __hash__(self) -> int:
        self.looked_for += 1
        return id(self)


def test_who_goes_is_taken_out_of_its_groups_alone() -> None:
    """The broker does not search a thousand other groups, and nothing of the client remains."""
    consumers, producers, gone, stays = ConsumerManager(), ProducerManager(), CountedConnection(), FakeConnection()
    for number in range(1000):
        consumers.register(consumer(f"G{number}", T), stays, CHANNEL)
        producers.register(f"P{number}", stays, CHANNEL)
    consumers.register(consumer("G7", T), gone, CHANNEL)
    producers.register("P7", gone, CHANNEL)
    gone.looked_for = 0
    assert [departure.consumer_group for departure in consumers.on_closed(gone)] == ["G7"]
    assert list(producers.on_closed(gone)) == ["P7"]
    assert gone.looked_for < 30
    assert consumers.memberships.count == producers.memberships.count == 1000
    assert (consumers.connections("G7"), producers.find("a")) == ([stays], stays)


def test_a_producer_is_found_by_the_id_that_it_has_now() -> None:
    """In any group; not by an earlier id, and not after it has gone."""
    producers, connection = ProducerManager(), FakeConnection()
    producers.register("P", connection, CHANNEL)
    producers.register("Q", connection, CHANNEL)
    producers.register("P", connection, ClientChannel("b", 0, 409, NOW_MS))
    assert producers.find("a") is producers.find("b") is connection
    producers.unregister("Q", connection)
    assert producers.find("a") is None
    connection.is_open = False
    assert producers.find("b") is None


_PAGE = Path(__file__).resolve().parents[3] / "docs" / "hostile.md"
_OTHERS = {"pull_bytes_max", "pull_messages_max", "transaction_check_max", "data_bytes_max", "disk_used_ratio_max"}
_NAMES = [field.name for field in fields(BrokerConfig) if field.name.endswith("_max")]


@by_row("name", [name for name in _NAMES if name not in _OTHERS])
def test_every_bound_is_in_the_documentation_with_its_default(name: str) -> None:
    """One row names its setting; its default stands there as a number, or in KiB or MiB. 0 is one that depends."""
    rows = [row for row in _PAGE.read_text().splitlines() if row.startswith("|") and f"`{name}`" in row]
    assert len(rows) == 1
    default: int = getattr(BrokerConfig(), name)
    shown = {f" {default:,} ", f" {default:,},", f" {default // 1024} KiB ", f" {default // 1024**2} MiB"}
    assert default == 0 or any(one in rows[0] for one in shown), f"{default:,}: {rows[0]}"
