"""The servers under attack, one for each world: settings by mode, rules, and what is stored before the attack."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.codes import RequestCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.host.runtime import ProtocolFactory
from tests.fuzz.frames.loose import Account, Loose, sign, to_bytes
from tests.fuzz.frames.oracle import Fault
from tests.fuzz.frames.peers import Peer, certificates, trusting
from tests.fuzz.frames.runtime import FuzzRuntime
from tests.fuzz.frames.words import HIDDEN, OPEN_GROUP, OPEN_TOPIC, PROTECTED_GROUPS, PROTECTED_TOPICS, Words

__all__ = [
    "ADMIN",
    "BROKER_PORT",
    "FEW",
    "LIMITS",
    "MODES",
    "NAME_SERVER_PORT",
    "NONE",
    "OWNER",
    "FuzzLog",
    "Watch",
    "end_server",
    "furnish",
    "new_server",
]

MODES: Final = ("plain", "acl", "tls", "both")
BROKER_PORT, NAME_SERVER_PORT = 10911, 9876
ADMIN = Account("admin-account", f"secret-{HIDDEN}-1")
OWNER = Account("owner-account", f"secret-{HIDDEN}-2")
FEW, NONE = Account("few-rights", "secret-of-few"), Account("no-rights", "secret-of-none")
_LONG_MS: Final = 1 << 40
_RULES: Final = f"""\
accounts:
- {{accessKey: {ADMIN.access_key}, secretKey: {ADMIN.secret_key}, admin: true}}
- {{accessKey: {OWNER.access_key}, secretKey: {OWNER.secret_key}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}}
- accessKey: {FEW.access_key}
  secretKey: {FEW.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [{OPEN_TOPIC}=PUB|SUB]
  groupPerms: [{OPEN_GROUP}=SUB]
- {{accessKey: {NONE.access_key}, secretKey: {NONE.secret_key}}}
"""
# Small, so that an attack of some thousand frames meets each of them.
LIMITS: Final[dict[str, Any]] = {
    "memory_limit_bytes": 8 << 20, "connections_max": 40, "offset_entries_max": 600, "statistics_max": 400,
    "filter_characters_max": 30_000, "send_sequences_max": 100, "lock_entries_max": 500,
    "lock_entries_per_group_max": 200,
    "lock_queues_per_request_max": 100, "lock_changes_max": 200, "heartbeat_groups_max": 30, "metrics_series_max": 100,
    "heartbeat_subscriptions_max": 60, "groups_per_connection_max": 60, "memberships_max": 400, "groups_max": 500,
    "brokers_max": 30, "routes_max": 500, "kv_configs_max": 200, "topics_max": 400, "held_pulls_max": 300,
    "held_pulls_per_connection_max": 40, "max_message_bytes": 300_000,
}  # fmt: skip


class FuzzLog:
    """Keeps what a log of a healthy server has no line of."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, dict[str, Any]]] = []
        self.counts: dict[str, int] = {}

    def debug(self, event: str, **fields: Any) -> None:
        self._take(event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._take(event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._take(event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._take(event, fields)
        self.faults.append((event, fields))

    def _take(self, event: str, fields: dict[str, Any]) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1
        if "exc_info" in fields:
            self.faults.append((event, fields))


class Watch:
    """Sees each request in front of a server, before its checks.

    Args:
        peers: By address.
    """

    def __init__(self, peers: dict[str, Peer]) -> None:
        self._peers = peers
        self.requests = 0

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def watched(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self.requests += 1
            peer = self._peers[endpoint.address]
            if peer.outside:
                raise Fault("a request without TLS reached a handler")
            if not command.is_one_way:
                peer.outstanding.setdefault(command.opaque, []).append(command.code)
            return on_request(endpoint, command)

        return watched

    def delay(self, factory: Callable[[], Endpoint]) -> ProtocolFactory:
        return factory


def new_server(mode: str, number: int, runtime: FuzzRuntime, log: FuzzLog, watch: Watch, folder: Path) -> BrokerServer:
    """A broker and a name server. Every other world without ACL has fenced locks."""
    settings: dict[str, Any] = dict(LIMITS, vip_channel=False)
    if mode in ("acl", "both"):
        rules = folder / f"{HIDDEN}.yml"
        rules.write_text(_RULES, encoding="utf-8")
        settings |= {"acl_enable": True, "acl_file": str(rules), "acl_checks": "strict"}
        # Nothing that others own may end by time: then every change is a peer's.
        settings |= {
            "lock_max_live_time_ms": _LONG_MS,
            "channel_expired_timeout_ms": _LONG_MS,
            "idle_close_ms": _LONG_MS,
        }
        settings |= {"transaction_check_interval_ms": _LONG_MS, "transaction_timeout_ms": _LONG_MS}
        settings |= {"acl_replay_window_ms": _LONG_MS}
    elif number % 2:
        settings |= {"lock_mode": "fenced", "lock_grace_ms": 0}
    if mode in ("tls", "both"):
        settings |= {"tls_mode": "enforcing", "tls_cert": certificates(folder)[0]}
    return BrokerServer(BrokerConfig(**settings), runtime, log, watch)


class _Helper:
    """An honest client that prepares a world."""

    def __init__(self, runtime: FuzzRuntime, mode: str, peers: dict[str, Peer], folder: Path) -> None:
        self._runtime = runtime
        self._peers = peers
        self._tls = trusting(certificates(folder)[1]) if mode in ("tls", "both") else None
        self._signs = mode in ("acl", "both")
        self._opaque = 0
        self.copies: list[bytes] = []  # of signed requests that a thief may have

    def connect(self, port: int) -> Peer:
        """A new connection, ready."""
        name_server = port == NAME_SERVER_PORT
        peer = Peer(self._runtime, len(self._peers) + 1, "admin", at_name_server=name_server, tls=self._tls)
        self._peers[peer.key] = peer
        peer.connect(port)
        if peer.session is not None and not peer.shake_hands():
            raise Fault("an honest handshake failed")
        return peer

    def ask(self, peer: Peer, loose: Loose, account: Account) -> RemotingCommand:
        """Send a request and take its answer."""
        self._opaque += 1
        loose.opaque = self._opaque
        if self._signs:
            loose.fields["lockstep.once"] = f"{self._runtime.now_ms()}-{peer.key.replace('-', '')}-{self._opaque}"
            sign(loose, account)
        data = to_bytes(loose)
        if self._signs:
            self.copies.append(data)
        peer.send(data)
        self._runtime.advance(1)
        for answer in peer.commands(peer.read()):
            if answer.is_reply and answer.opaque == self._opaque:
                peer.outstanding.pop(self._opaque, None)
                return answer
        raise Fault(f"an honest request {loose.code} has no answer")


def furnish(
    server: BrokerServer, mode: str, runtime: FuzzRuntime, peers: dict[str, Peer], words: Words, folder: Path
) -> list[bytes]:
    """Make topics, groups, members, locks and messages. Returns recorded signed requests of their owner."""
    helper = _Helper(runtime, mode, peers, folder)
    broker = helper.connect(BROKER_PORT)
    topics = (OPEN_TOPIC, *PROTECTED_TOPICS, HIDDEN)
    for topic in topics:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        _ok(helper.ask(broker, Loose(0, int(RequestCode.UPDATE_AND_CREATE_TOPIC), dict(fields)), ADMIN))
    groups = (OPEN_GROUP, *PROTECTED_GROUPS, f"group-{HIDDEN}")
    for group in groups:
        body = {"groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16}
        _ok(helper.ask(broker, Loose(0, int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), {}, body), ADMIN))
    _join(helper, broker, topics, groups)
    for topic in topics:
        for queue_id in range(2):
            _send(helper, broker, topic, queue_id, 0, "KEYS\x01k1\x02", words)
    _send(
        helper,
        broker,
        "secret",
        0,
        int(SysFlag.TRANSACTION_PREPARED),
        "TRAN_MSG\x01true\x02PGROUP\x01secret-group\x02",
        words,
    )
    _send(helper, broker, "secret", 0, 0, "DELAY\x0118\x02", words)
    names = helper.connect(NAME_SERVER_PORT)
    fields = {"namespace": HIDDEN, "key": "k", "value": "v"}
    _ok(helper.ask(names, Loose(0, int(RequestCode.PUT_KV_CONFIG), fields), ADMIN))
    return helper.copies


def _ok(answer: RemotingCommand) -> RemotingCommand:
    if answer.code:
        raise Fault(f"an honest request was refused: {answer.code} {answer.remark}")
    return answer


def _join(helper: _Helper, broker: Peer, topics: tuple[str, ...], groups: tuple[str, ...]) -> None:
    client = f"owner-{HIDDEN}"
    one = {"subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    subscriptions = [{"topic": topic, **one} for topic in topics]
    consumers = [
        {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": subscriptions,
        }
        for group in groups if group != OPEN_GROUP
    ]  # fmt: skip
    body = {"clientID": client, "consumerDataSet": consumers, "producerDataSet": [{"groupName": "secret-group"}]}
    _ok(helper.ask(broker, Loose(0, int(RequestCode.HEART_BEAT), {}, body), OWNER))
    for group in groups[1:]:
        queues = [{"topic": topic, "brokerName": "broker-a", "queueId": 0} for topic in topics]
        locks = {"consumerGroup": group, "clientId": client, "mqSet": queues}
        _ok(helper.ask(broker, Loose(0, int(RequestCode.LOCK_BATCH_MQ), {}, locks), OWNER))
        for topic in topics:
            fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}
            _ok(helper.ask(broker, Loose(0, int(RequestCode.UPDATE_CONSUMER_OFFSET), fields), OWNER))


def _send(helper: _Helper, broker: Peer, topic: str, queue_id: int, flag: int, properties: str, words: Words) -> None:
    fields = {
        "producerGroup": "secret-group", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": str(queue_id), "sysFlag": str(flag), "bornTimestamp": "1", "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false",
    }  # fmt: skip
    body = b"public" if topic == OPEN_TOPIC else HIDDEN.encode()
    answer = _ok(helper.ask(broker, Loose(0, int(RequestCode.SEND_MESSAGE), fields, body), OWNER))
    message_id = str((answer.ext_fields or {})["msgId"])
    words.message_ids.append(message_id)
    words.offsets.append(int(message_id[16:32], 16))


async def end_server(server: BrokerServer, runtime: FuzzRuntime) -> None:
    """Raises Fault when it does not end within 10 s of the fuzzer's clock."""
    ending = runtime.create_task(server.shutdown(), name="shutdown")
    for _ in range(100):
        runtime.advance(100)
        await asyncio.sleep(0)
    if not ending.done():
        raise Fault("the server does not end")
    ending.result()


def rng_of(*parts: object) -> random.Random:
    """A generator whose numbers depend on these values alone."""
    return random.Random("/".join(map(str, parts)))
