"""Clients of a broker with fenced locks: Java's, with the frames that it sends, and Lockstep's, with epochs."""

import json
from typing import Any

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pull import sweep_held_pulls
from lockstep.broker.ownership.denial import Act, Reason
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RemotingFlag, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import (
    PullMessageResponseHeader,
    ResetOwnOffsetRequestHeader,
    ResetOwnOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.fronts.java_frames import commit_fields, heartbeat_body, lock_body, pull_fields, send_back_fields
from tests.broker.helpers import FakeConnection, Peer, pull_header, queues_of, send_header

__all__ = ["Java", "Ours", "World", "committed", "next_offset", "refused"]

ADDRESSES = [f"127.0.0.1:{port}" for port in range(50_100, 50_200)]


class World:
    """A broker with fenced locks and topic T. `wait` moves its time and runs what its timers run."""

    def __init__(self, **settings: Any) -> None:
        self.admin = Peer(SerializeType.JSON, lock_mode="fenced", **settings)
        self.admin.make_topics("T")
        self.peers = [self.admin]

    @property
    def broker(self) -> Broker:
        return self.admin.broker

    @property
    def now_ms(self) -> int:
        return self.admin.now_ms

    def peer(self, encoding: SerializeType, connection: FakeConnection | None = None) -> Peer:
        connection = connection or FakeConnection(ADDRESSES[len(self.peers)], encoding)
        peer = Peer(encoding, broker=self.broker, connection=connection)
        peer.now_ms, peer.log = self.now_ms, self.admin.log
        self.peers.append(peer)
        return peer

    def wait(self, ms: int) -> None:
        for peer in self.peers:
            peer.now_ms += ms
        sweep_held_pulls(self.broker, self.now_ms)

    def java(self, client_id: str, connection: FakeConnection | None = None) -> "Java":
        return Java(self.peer(SerializeType.JSON, connection), client_id)

    def ours(self, client_id: str) -> "Ours":
        return Ours(self.peer(SerializeType.MSGPACK), client_id)

    def send(self, count: int = 1) -> None:
        self.admin.send_many(count)


class Java:
    """An unmodified client: JSON frames, all header fields texts, commits one-way."""

    def __init__(self, peer: Peer, client_id: str) -> None:
        self.peer = peer
        self.client_id = client_id

    @property
    def connection(self) -> FakeConnection:
        return self.peer.connection

    def _ask(self, code: int, fields: dict[str, str], body: bytes = b"", *, flag: int = 0) -> RemotingCommand | None:
        command = {"ext_fields": fields, "flag": flag, "language": 0, "opaque": 7}
        return self.peer.call(code, None, body, **command)

    def _reply(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        reply = self._ask(code, fields, body)
        assert reply is not None
        return reply

    def lock(self, group: str = "G") -> bool:
        reply = self._reply(RequestCode.LOCK_BATCH_MQ, {}, lock_body(self.client_id, group, "T"))
        return bool(json.loads(reply.body)["lockOKMQSet"])

    def unlock(self, group: str = "G") -> None:
        reply = self._reply(RequestCode.UNLOCK_BATCH_MQ, {}, lock_body(self.client_id, group, "T"))
        assert reply.code == ResponseCode.SUCCESS

    def heartbeat(self, *groups: str, model: str = "CLUSTERING") -> None:
        body = heartbeat_body(self.client_id, groups or ("G",), "T", model)
        assert self._reply(RequestCode.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS

    def unregister(self, group: str = "G") -> None:
        self._ask(RequestCode.UNREGISTER_CLIENT, {"clientID": self.client_id, "consumerGroup": group})

    def commit(self, offset: int, *, group: str = "G", one_way: bool = True) -> RemotingCommand | None:
        """`one_way`: as Java and Go commit; the broker's shell drops what the handler answers."""
        flag = int(RemotingFlag.ONE_WAY) if one_way else 0
        return self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(group, "T", offset), flag=flag)

    def pull(
        self, offset: int, *, commit: int | None = None, group: str = "G", wait: bool = True
    ) -> RemotingCommand | None:
        """None: the broker holds it. `commit`: the offset that the pull carries."""
        return self._ask(RequestCode.PULL_MESSAGE, pull_fields(group, "T", offset, commit, wait=wait))

    def send_back(self, commit_log_offset: int, group: str = "G") -> RemotingCommand:
        return self._reply(RequestCode.CONSUMER_SEND_MSG_BACK, send_back_fields(group, "T", commit_log_offset))

    def late(self) -> list[RemotingCommand]:
        """The answers of held pulls since the last call."""
        replies, self.connection.replies = self.connection.replies, []
        return replies


class Ours:
    """A Lockstep client with fencing. `epoch`: that of its last grant."""

    def __init__(self, peer: Peer, client_id: str) -> None:
        self.peer = peer
        self.client_id = client_id
        self.epoch = 0

    def lock(self, epoch: int = 0) -> bool:
        """Claim the queue, or renew the lock under an epoch."""
        body = LockBatchBody("G", self.client_id, queues_of("T", 1), (epoch,))
        reply = self.peer.answer(RequestCode.LOCK_BATCH_MQ, None, body)
        grants = decode_body(LockOkBody, reply.body, reply.serialize_type).grants
        if grants:
            self.epoch = grants[0].epoch
        return bool(grants)

    def unlock(self, epoch: int | None = None) -> None:
        body = LockBatchBody("G", self.client_id, queues_of("T", 1), (self.epoch if epoch is None else epoch,))
        assert self.peer.answer(RequestCode.UNLOCK_BATCH_MQ, None, body).code == ResponseCode.SUCCESS

    def commit(self, offset: int, epoch: int | None = None) -> RemotingCommand:
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, offset, self._or_own(epoch), self.client_id)
        return self.peer.answer(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def pull(
        self, offset: int, epoch: int | None = None, *, commit: int | None = None, wait: bool = True
    ) -> RemotingCommand | None:
        flags = 4 + 2 * wait + (commit is not None)
        lock = {"lock_epoch": self._or_own(epoch), "lock_client_id": self.client_id}
        header = pull_header(offset, sys_flag=flags, commit_offset=commit or 0, **lock)
        return self.peer.call(RequestCode.PULL_MESSAGE, header)

    def send_back(self, commit_log_offset: int, epoch: int | None = None) -> RemotingCommand:
        header = SendMessageBackRequestHeader(
            commit_log_offset,
            "G",
            0,
            lock_epoch=self._or_own(epoch),
            lock_client_id=self.client_id,
            lock_topic="T",
            lock_queue_id=0,
        )
        return self.peer.answer(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def dead_letter(self, epoch: int | None = None) -> RemotingCommand:
        lock = {"lock_topic": "T", "lock_queue_id": 0, "lock_client_id": self.client_id}
        lock["lock_epoch"] = self._or_own(epoch)
        header = send_header("%RETRY%G", reconsume_times=16, max_reconsume_times=16, **lock)
        return self.peer.answer(RequestCode.SEND_MESSAGE_V2, header, b"dead")

    def reset(self, offset: int, epoch: int | None = None) -> RemotingCommand:
        """The client has a new epoch then."""
        header = ResetOwnOffsetRequestHeader("G", "T", 0, offset, self._or_own(epoch), self.client_id)
        reply = self.peer.answer(RequestCode.RESET_OWN_OFFSET, header)
        if reply.code == ResponseCode.SUCCESS:
            self.epoch = reply.decode_header(ResetOwnOffsetResponseHeader).lock_epoch
        return reply

    def _or_own(self, epoch: int | None) -> int:
        return self.epoch if epoch is None else epoch

    def late(self) -> list[RemotingCommand]:
        """The answers of held pulls since the last call."""
        replies, self.peer.connection.replies = self.peer.connection.replies, []
        return replies


def committed(world: World, group: str = "G") -> int:
    return world.broker.catalog.offsets.query(group, "T", 0)


def next_offset(reply: RemotingCommand | None) -> tuple[int, int]:
    """Code and next offset of the answer to a pull."""
    assert reply is not None, "no answer"
    return reply.code, reply.decode_header(PullMessageResponseHeader).next_begin_offset


def refused(world: World) -> dict[tuple[Act, Reason], int]:
    return dict(world.broker.ownership.denials.refused)
