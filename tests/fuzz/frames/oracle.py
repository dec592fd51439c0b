"""What must hold whatever is sent. Nothing here asks the product's checks of permissions.

A peer has a persona, which bounds its rights: `any` (no ACL), `admin`; and under ACL with strict checks
`stranger` (no signature, or a wrong one), `none` (an account without permissions), `few` (an account with permissions
on one topic and one group), `thief` (sends copies of signed requests of another).
"""

from typing import Any, Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.name_server.name_server import NameServer
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from tests.fuzz.frames.peers import Peer
from tests.fuzz.frames.words import HIDDEN, OPEN_GROUP, OPEN_TOPIC

__all__ = ["Fault", "answer_fault", "protected", "secrets_fault"]

_R = RequestCode
_CODES: Final = frozenset(int(code) for code in ResponseCode)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
# A signature is enough for these when they name no topic and no group, and for sends to the topic of traces
# (docs/security.md). What they change is looked at apart.
_HARMLESS: Final = frozenset(
    {
        _R.CHECK_CLIENT_CONFIG, _R.HEART_BEAT, _R.UNREGISTER_CLIENT, _R.SEND_MESSAGE, _R.SEND_MESSAGE_V2,
        _R.SEND_BATCH_MESSAGE, _R.POP_ROLLBACK,
    }
)  # fmt: skip
_NAME_SERVER_READS: Final = frozenset(
    {
        _R.GET_KV_CONFIG, _R.GET_ROUTEINFO_BY_TOPIC, _R.GET_BROKER_CLUSTER_INFO, _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        _R.GET_KVLIST_BY_NAMESPACE, _R.GET_TOPICS_BY_CLUSTER, _R.GET_SYSTEM_TOPIC_LIST_FROM_NS, _R.GET_UNIT_TOPIC_LIST,
        _R.GET_HAS_UNIT_SUB_TOPIC_LIST, _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _R.QUERY_DATA_VERSION,
    }
)  # fmt: skip
_OPEN: Final = frozenset({OPEN_TOPIC, OPEN_GROUP, f"%RETRY%{OPEN_GROUP}", f"%DLQ%{OPEN_GROUP}"})
_SHARED: Final = _OPEN | {
    # They hold delayed and half messages of all topics; anybody with a key may write traces.
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
    "OFFSET_MOVED_EVENT",  # the broker writes it itself
}  # fmt: skip
_ANYBODYS_GROUPS: Final = _OPEN | {"CLIENT_INNER_PRODUCER", "DEFAULT_PRODUCER"}  # every Java client is in them
_SECRET: Final = HIDDEN.encode()


class Fault(Exception):
    """Something that must not happen did."""


def answer_fault(peer: Peer, code: int, answer: RemotingCommand) -> str | None:
    """Why an answer must not have been given.

    Args:
        code: Of the request.
    """
    if answer.code not in _CODES:
        return f"response code {answer.code} is none of RocketMQ's"
    if peer.persona in ("any", "admin") or answer.code != _SUCCESS:
        return None
    if peer.at_name_server:
        return None if code in _NAME_SERVER_READS else "a name server served a change without an administrator's key"
    if peer.persona in ("stranger", "thief"):
        return "served without a right signature"
    if peer.persona == "none" and code not in _HARMLESS:
        return "served to an account without permissions"
    return None


def secrets_fault(peer: Peer, data: bytes) -> str | None:
    """A body, name or key that only others know is in what a broker sent. A name server's routes are open."""
    if peer.persona in ("any", "admin") or peer.at_name_server or _SECRET not in data:
        return None
    return "an answer holds what this peer may not read"


def protected(broker: Broker, name_server: NameServer, now_ms: int, half: int) -> dict[Any, Any]:
    """Everything that no peer under ACL may change, as plain values: all but the one open topic and group.

    Args:
        now_ms: The broker's time.
        half: The queue offset of a half message of another.
    """
    state: dict[Any, Any] = {
        "config": broker.config,
        "half": broker.messages.halves.is_open(half),
        "kv": (name_server.kv_configs.count, str(name_server.kv_configs.namespace(HIDDEN))),
        "routes": tuple(name for name in name_server.topics() if name not in _SHARED),
        "brokers": str(name_server.cluster_info()),
    }
    state |= {
        ("topic", config.topic_name): config
        for config in broker.catalog.topics.topics
        if config.topic_name not in _SHARED
    }
    state |= {
        ("end", *queue): end for queue, end in broker.messages.store.max_offsets().items() if queue[0] not in _SHARED
    }
    state |= {
        ("group", config.group_name): config
        for config in broker.catalog.groups.groups
        if config.group_name not in _OPEN
    }
    state |= {
        ("offset", *key): dict(found)
        for key, found in broker.catalog.offsets.table.items()
        if not _OPEN.issuperset(key)
    }
    for name, group in broker.members.consumers.groups.items():
        if name not in _OPEN:
            members = group.channels.values()
            state["members", name] = tuple(sorted((each.client_id, each.last_update_ms) for each in members))
    for name, channels in broker.members.producers.groups.items():
        if name not in _ANYBODYS_GROUPS:
            state["producers", name] = tuple(
                sorted((each.client_id, each.last_update_ms) for each in channels.values())
            )
    for row in tuple(broker.ownership.table.rows(now_ms)):
        if not {row.consumer_group, row.queue.topic} <= _OPEN:
            state["lock", row.consumer_group, row.queue] = (row.client_id, now_ms - row.age_ms, row.epoch)
    if broker.acl is not None:
        state["rules"] = tuple(sorted(broker.acl.files.rules.accounts)), broker.acl.files.rules.white_addresses
    return state
