"""Names and texts of peers that tables keep are bounded in length, not only in number; and settings in one request."""

import pytest

from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.name_server import NameServer, NameServerFull
from lockstep.broker.request_body import check_body_length
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, RecordingLog, consumer, heartbeat_of

R = RequestCode
QUEUE = MessageQueue("T", "b", 0)
LONG_ID = "c" * 513


@pytest.mark.parametrize("code", [R.LOCK_BATCH_MQ, R.UNLOCK_BATCH_MQ])
def test_a_lock_request_has_a_client_id_of_512_characters_at_most(code: RequestCode) -> None:
    """The lock table keeps it for each queue."""
    peer = Peer()
    assert peer.answer(code, None, LockBatchBody("G", LONG_ID[1:], (QUEUE,))).code == 0
    with pytest.raises(BodyError, match="clientId has 513 characters"):
        peer.answer(code, None, LockBatchBody("G", LONG_ID, (QUEUE,)))
    assert len(peer.broker.ownership.table) == (code == R.LOCK_BATCH_MQ)


def test_a_heartbeat_has_names_of_bounded_length() -> None:
    """Of the client and of its producer groups; those of consumers have RocketMQ's own rules."""
    peer = Peer()
    with pytest.raises(BodyError, match="clientID has 513 characters"):
        peer.answer(R.HEART_BEAT, None, heartbeat_of(LONG_ID, consumer("G")))
    with pytest.raises(BodyError, match="groupName has 256 characters"):
        peer.answer(R.HEART_BEAT, None, heartbeat_of("c", producers=("p" * 256,)))
    assert not peer.broker.members.consumers.groups
    assert not peer.broker.members.producers.groups


def test_subscriptions_have_a_bound_of_characters_which_refuses_growth_alone() -> None:
    """A member beats on when the table is full, and a group that ends makes room."""
    peer = Peer(subscription_characters_max=100)
    first = heartbeat_of("c", consumer("G", SubscriptionData("T", "x" * 90)))
    assert peer.answer(R.HEART_BEAT, None, first).code == 0
    other = heartbeat_of("c", consumer("H", SubscriptionData("T", "x" * 90)))
    refused = peer.answer(R.HEART_BEAT, None, other)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "subscription_characters_max: 100" in (refused.remark or "")
    assert peer.answer(R.HEART_BEAT, None, first).code == 0
    assert "limit_met" in peer.log.names("warning")
    peer.broker.members.consumers.unregister("G", peer.connection)
    assert peer.broker.members.consumers.characters == 0
    assert peer.answer(R.HEART_BEAT, None, other).code == 0


def test_the_name_server_keeps_so_many_characters_of_pairs() -> None:
    """A pair that grows counts what it grows by; one that is deleted or becomes shorter makes room."""
    server, connection = NameServer(NameServerConfig(kv_characters_max=20), RecordingLog()), FakeConnection()
    server.put_kv("n", "k", "v" * 18, connection, NOW_MS)
    with pytest.raises(NameServerFull, match="kv_characters_max is 20"):
        server.put_kv("n", "k", "v" * 19, connection, NOW_MS)
    with pytest.raises(NameServerFull, match="kv_characters_max is 20"):
        server.put_kv("n", "l", "", connection, NOW_MS)
    server.put_kv("n", "k", "v" * 17, connection, NOW_MS)
    server.put_kv("n", "l", "", connection, NOW_MS)
    server.kv_configs.delete("n", "k")
    assert server.kv_configs.characters == 2
    server.put_kv("m", "k", "v" * 16, connection, NOW_MS)
    assert server.kv_configs.characters == 20


@pytest.mark.parametrize(
    "body", [b"a=1\n" * 1000, b"a=1\r" * 1000, b"a=1\x0b" * 1000, "a=1\x85".encode() * 1000, b"a=" + b"1" * 65_536]
)
def test_a_request_with_too_many_settings_changes_none(body: bytes) -> None:
    """Each line costs time: 28,000 kept a broker for 4.7 s."""
    peer = Peer()
    reply = peer.answer(R.UPDATE_BROKER_CONFIG, None, b"notifyConsumerIdsChangedEnable=false\n" + body)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "at most 1000 lines" in (reply.remark or "")
    assert peer.broker.config.notify_consumer_ids_changed


def test_a_request_may_have_a_thousand_settings() -> None:
    """Each of their lines ends."""
    peer = Peer()
    body = b"a=1\n" * 999 + b"notifyConsumerIdsChangedEnable=false\n"
    assert peer.answer(R.UPDATE_BROKER_CONFIG, None, body).code == 0
    assert not peer.broker.config.notify_consumer_ids_changed


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (SerializeType.JSON, b'{"clientID":"c","consumerDataSet":[' + b"[]," * 60_000 + b"[]]}"),
        (SerializeType.JSON, b'{"clientID":"c","consumerDataSet":[' + b"{}," * 60_000 + b"{}]}"),
        (SerializeType.MSGPACK, b"\x81\xafconsumerDataSet\xdd\x00\x01\x00\x00" + b"\x90" * 65_536),
        (SerializeType.MSGPACK, b"\x81\xafconsumerDataSet\xdd\x00\x01\x00\x00" + b"\x80" * 65_536),
    ],
)
def test_a_body_of_very_many_parts_is_refused_before_it_is_read(encoding: SerializeType, body: bytes) -> None:
    """1 MiB of empty lists took 115 ms in JSON and 500 ms in msgpack."""
    with pytest.raises(BodyError, match=r"more than 52428 objects and lists.*structured_body_bytes_max"):
        Peer(encoding).answer(R.HEART_BEAT, None, body)


def test_a_short_limit_of_bodies_holds_for_short_bodies() -> None:
    """Also below the length from which the parts are counted."""
    peer = Peer(structured_body_bytes_max=1000)
    assert peer.answer(R.HEART_BEAT, None, heartbeat_of("c", consumer("G"))).code == 0
    with pytest.raises(BodyError, match="at most 1000 are allowed"):
        peer.answer(R.HEART_BEAT, None, heartbeat_of("c" * 1000, consumer("G")))


@pytest.mark.parametrize(
    ("code", "bytes_max", "parts_max"),
    [
        (R.HEART_BEAT, 1 << 20, 52_428),
        (R.HEART_BEAT, 1 << 22, 209_715),
        (R.REGISTER_BROKER, 1 << 20, 65_536),
        (R.REGISTER_BROKER, 1 << 22, 262_144),
    ],
)
def test_the_number_of_parts_grows_with_the_limit_of_bytes(code: RequestCode, bytes_max: int, parts_max: int) -> None:
    """A name server whose operator raises it takes registrations of more topics."""
    check_body_length(RemotingCommand(code, body=b"{}" * parts_max), bytes_max)
    with pytest.raises(BodyError, match=f"more than {parts_max} objects"):
        check_body_length(RemotingCommand(code, body=b"{}" * (parts_max + 1)), bytes_max)
