"""What each request code requires of an account, as RocketMQ 4.9 checks it and as `--acl-checks strict` does.

docs/security.md has these tables, generated. RocketMQ maps nine codes to permissions; every other code is served to any
account, with or without permissions. A code that RocketMQ 4.9 does not have requires the same in both modes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from lockstep.broker.acl.permissions import ANY, PUB, SUB
from lockstep.broker.request_body import read_body
from lockstep.protocol.bodies.heartbeat import UnreadHeartbeat
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.bodies.pop import BatchAckBody, QueryAssignmentBody
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import REQUEST_HEADERS
from lockstep.protocol.headers.spec import spec_of
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.messages.together import decode_commits, decode_sends
from lockstep.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, is_retry_topic, popped_topic, retry_topic

__all__ = [
    "NAME_SERVER_ADMIN",
    "REQUIRED_PERMISSIONS",
    "CheckedRequest",
    "RequiredPermission",
    "Requirement",
    "required_of",
    "stand_ins_of",
]

_Found = Iterator[tuple[str, int]]
_SHOWN: Final = {PUB: "PUB", SUB: "SUB", ANY: "PUB or SUB"}


class CheckedRequest(NamedTuple):
    """A request.

    Args:
        texts: Its header fields.
        message_at: A stored message by its commit log offset.
        stand_ins: What a handler reads for a field that is absent.
    """

    command: RemotingCommand
    texts: Mapping[str, str]
    message_at: Callable[[int], bytes | None]
    stand_ins: Mapping[str, str] = {}

    def name(self, field: str) -> str | None:
        """A topic or a group that the request names; None: it names none."""
        given = self.texts.get(field)
        return given if given is not None else self.stand_ins.get(field)


@cache
def _stand_ins(header_class: type[tuple[Any, ...]]) -> Mapping[str, str]:
    fields = spec_of(header_class).fields
    return {each.wire_name: each.absent for each in fields if each.absent and type(each.absent) is str}


def stand_ins_of(code: int) -> Mapping[str, str]:
    """What handlers read for absent fields of a request: RocketMQ's clients may leave out what Java reads as null."""
    header_class = REQUEST_HEADERS.get(code)
    return {} if header_class is None else _stand_ins(header_class)


class RequiredPermission(NamedTuple):
    """One permission: how the docs call it, and the resources of a request that need it.

    Args:
        of_stored: The resources are of a stored message: a refusal must not name them.
    """

    text: str
    find: Callable[[CheckedRequest], Iterable[tuple[str, int]]]
    of_stored: bool = False


class Requirement(NamedTuple):
    """What a code requires in one mode. Without permissions a signature is enough."""

    admin: bool = False
    permissions: tuple[RequiredPermission, ...] = ()

    @property
    def text(self) -> str:
        return "admin" if self.admin else "; ".join(each.text for each in self.permissions) or "a signature"


def _topic(field: str, permission: int) -> RequiredPermission:
    def find(request: CheckedRequest) -> _Found:
        topic = request.name(field)
        if topic is not None:
            yield topic, permission

    return RequiredPermission(f"{_SHOWN[permission]} on topic `{field}`", find)


def _group(field: str, permission: int = SUB) -> RequiredPermission:
    def find(request: CheckedRequest) -> _Found:
        group = request.name(field)
        if group is not None:
            yield retry_topic(group), permission

    return RequiredPermission(f"{_SHOWN[permission]} on group `{field}`", find)


def _send(topic_field: str, group_field: str) -> RequiredPermission:
    """A send to a retry topic counts as the consumer's; RocketMQ takes the group that the request names."""

    def find(request: CheckedRequest) -> _Found:
        topic, group = request.texts.get(topic_field), request.texts.get(group_field)
        if topic is not None and is_retry_topic(topic):
            if group is not None:
                yield retry_topic(group), SUB
        elif topic is not None:
            yield topic, PUB

    return RequiredPermission(f"PUB on topic `{topic_field}`; for a retry topic SUB on group `{group_field}`", find)


def _send_strict(topic_field: str) -> RequiredPermission:
    def find(request: CheckedRequest) -> _Found:
        topic = request.name(topic_field)
        if topic is not None:
            yield topic, SUB if is_retry_topic(topic) else PUB

    return RequiredPermission(f"PUB on topic `{topic_field}`; for a retry topic SUB on its group", find)


def _heartbeat(*, producers: bool) -> RequiredPermission:
    def find(request: CheckedRequest) -> _Found:
        data = read_body(UnreadHeartbeat, request.command).read()
        for consumer in data.consumer_data_set:
            yield retry_topic(consumer.group_name), SUB
            for subscription in consumer.subscriptions:
                yield subscription.topic, SUB
        for producer in data.producer_data_set if producers else ():
            if producer.group_name not in _INNER_GROUPS:
                yield retry_topic(producer.group_name), ANY

    text = "SUB on each consumer group and on each subscribed topic"
    return RequiredPermission(f"{text}; PUB or SUB on each producer group" if producers else text, find)


_INNER_GROUPS: Final = ("CLIENT_INNER_PRODUCER", "DEFAULT_PRODUCER")  # that every Java client is in


def _locks(request: CheckedRequest) -> _Found:
    body = read_body(LockBatchBody, request.command)
    yield retry_topic(body.consumer_group), SUB
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield topic, SUB


def _topic_of(request: CheckedRequest, offset: int) -> str | None:
    """The topic of a stored message; that of a half message or a delayed one is the topic it is for."""
    stored = request.message_at(offset)
    if stored is None:
        return None  # the handler says so
    message = decode_messages(stored, unzip=False)[0]
    if message.topic in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
        return message.properties.get(names.REAL_TOPIC, message.topic)
    return message.topic


def _number(text: str | None) -> int | None:
    """Every form that a handler reads, with a sign or zeros before the digits; else the check would not see it."""
    try:
        return int(text or "")
    except ValueError:
        return None


def _sends(request: CheckedRequest) -> _Found:
    """Each topic of the frame, whose queues are read as the handler reads them."""
    count = _number(request.texts.get("messageCount")) or 0
    queues, _, _ = decode_sends(request.command.body, count)
    for topic in dict.fromkeys(queue.topic for queue in queues):
        yield topic, SUB if is_retry_topic(topic) else PUB


def _commits(request: CheckedRequest) -> _Found:
    for topic in dict.fromkeys(
        commit.topic for commit in decode_commits(request.command.body, _number(request.texts.get("commitCount")) or 0)
    ):
        yield topic, SUB


def _assignment(request: CheckedRequest) -> _Found:
    asked = read_body(QueryAssignmentBody, request.command)
    yield retry_topic(asked.consumer_group), SUB
    yield asked.topic, SUB


def _settled(request: CheckedRequest) -> _Found:
    """The retry topic of a group is for whoever may read the group and the first topic."""
    topic, group = request.name("topic"), request.name("consumerGroup")
    if topic is not None:
        yield popped_topic(group or "", topic), SUB


def _acks(request: CheckedRequest) -> _Found:
    for one in read_body(BatchAckBody, request.command).acks:
        yield retry_topic(one.consumer_group), SUB
        yield one.topic, SUB


def _stored(field: str, permission: int) -> RequiredPermission:
    def find(request: CheckedRequest) -> _Found:
        offset = _number(request.texts.get(field))
        topic = _topic_of(request, offset) if offset is not None else None
        if topic is not None:
            yield topic, permission

    return RequiredPermission(f"{_SHOWN[permission]} on the topic of the message at `{field}`", find, of_stored=True)


_R = RequestCode
_SIGNED: Final = Requirement()
_ADMIN: Final = Requirement(admin=True)


def _all_of(*permissions: RequiredPermission) -> Requirement:
    return Requirement(permissions=permissions)


_QUEUE_READ: Final = _all_of(_topic("topic", ANY))
_SENDS: Final = _all_of(RequiredPermission("PUB on each topic of the body", _sends))
_LOCKS: Final = _all_of(RequiredPermission("SUB on the group and on each topic of the body", _locks))
_PULL: Final = _all_of(_topic("topic", SUB), _group("consumerGroup"))
_SETTLED: Final = _all_of(
    RequiredPermission("SUB on topic `topic`, or on its retry topic's", _settled), _group("consumerGroup")
)
_ACKS: Final = _all_of(RequiredPermission("SUB on the group and on the topic of each acknowledgement", _acks))
_ASSIGNMENT: Final = _all_of(RequiredPermission("SUB on the group and on the topic of the body", _assignment))
_OF_GROUP: Final = _all_of(_group("consumerGroup"))
_UNREGISTER: Final = _all_of(_group("consumerGroup"))
_OFFSETS: Final = _all_of(_group("consumerGroup"), _topic("topic", SUB))
_COMMITS: Final = _all_of(_group("consumerGroup"), RequiredPermission("SUB on each topic of the body", _commits))
# A reply to a message goes to a client that waits, whose id only the message has.
_REPLY: Final = (_SIGNED, _all_of(_send_strict("topic")))
_REPLY_V2: Final = (_SIGNED, _all_of(_send_strict("b")))
_ADMIN_ONLY_STRICT: Final = (_SIGNED, _ADMIN)
_ADMIN_ALWAYS: Final = (_ADMIN, _ADMIN)
_ANY_SIGNED: Final = (_SIGNED, _SIGNED)

# By code: what RocketMQ 4.9 requires, and what strict checks require.
REQUIRED_PERMISSIONS: Final[Mapping[int, tuple[Requirement, Requirement]]] = {
    # Messages.
    _R.SEND_MESSAGE: (_all_of(_send("topic", "group")), _all_of(_send_strict("topic"))),
    _R.SEND_MESSAGE_V2: (_all_of(_send("b", "a")), _all_of(_send_strict("b"))),
    _R.SEND_BATCH_MESSAGE: (_SIGNED, _all_of(_send_strict("b"))),
    _R.SEND_TOGETHER: (_SENDS, _SENDS),
    _R.FIND_SENT: (_all_of(_topic("topic", PUB)), _all_of(_topic("topic", PUB))),
    _R.RECALL_MESSAGE: (_all_of(_topic("topic", PUB)), _all_of(_topic("topic", PUB))),
    _R.SEND_REPLY_MESSAGE: _REPLY,
    _R.SEND_REPLY_MESSAGE_V2: _REPLY_V2,
    _R.PULL_MESSAGE: (_PULL, _PULL),
    _R.LITE_PULL_MESSAGE: (_PULL, _PULL),
    **dict.fromkeys(
        (
            _R.POP_MESSAGE,
            _R.PEEK_MESSAGE,
            _R.NOTIFICATION,
            _R.POLLING_INFO,
        ),
        (_PULL, _PULL),
    ),
    _R.ACK_MESSAGE: (_SETTLED, _SETTLED),
    _R.CHANGE_MESSAGE_INVISIBLETIME: (_SETTLED, _SETTLED),
    _R.BATCH_ACK_MESSAGE: (_ACKS, _ACKS),
    _R.POP_ROLLBACK: _ANY_SIGNED,
    _R.QUERY_ASSIGNMENT: (_SIGNED, _ASSIGNMENT),
    _R.SET_MESSAGE_REQUEST_MODE: _ADMIN_ONLY_STRICT,
    _R.GET_ALL_MESSAGE_REQUEST_MODE: _ADMIN_ONLY_STRICT,
    _R.CONSUMER_SEND_MSG_BACK: (_all_of(_group("group")), _all_of(_group("group"), _stored("offset", SUB))),
    _R.END_TRANSACTION: (_SIGNED, _all_of(_stored("commitLogOffset", PUB))),
    _R.QUERY_MESSAGE: (_all_of(_topic("topic", SUB)), _all_of(_topic("topic", SUB))),
    _R.VIEW_MESSAGE_BY_ID: (_SIGNED, _all_of(_stored("offset", SUB))),
    _R.QUERY_CONSUME_QUEUE: (_SIGNED, _all_of(_topic("topic", SUB))),
    # Consumers.
    _R.HEART_BEAT: (_all_of(_heartbeat(producers=False)), _all_of(_heartbeat(producers=True))),
    _R.UNREGISTER_CLIENT: (_UNREGISTER, _UNREGISTER),
    _R.GET_CONSUMER_LIST_BY_GROUP: (_OF_GROUP, _OF_GROUP),
    _R.UPDATE_CONSUMER_OFFSET: (_OFFSETS, _OFFSETS),
    _R.COMMIT_TOGETHER: (_COMMITS, _COMMITS),
    _R.QUERY_CONSUMER_OFFSET: (_SIGNED, _OFFSETS),
    _R.LOCK_BATCH_MQ: (_SIGNED, _LOCKS),
    _R.UNLOCK_BATCH_MQ: (_SIGNED, _LOCKS),
    _R.RESET_OWN_OFFSET: (_OFFSETS, _OFFSETS),
    _R.LIST_LOCKS: _ADMIN_ONLY_STRICT,
    _R.LIST_LOCK_CHANGES: _ADMIN_ONLY_STRICT,
    _R.LIST_DELIVERIES: _ADMIN_ONLY_STRICT,
    _R.LIST_CONSUMER_GROUPS: _ADMIN_ONLY_STRICT,
    _R.CHECK_CLIENT_CONFIG: _ANY_SIGNED,
    # Queues.
    _R.GET_MAX_OFFSET: (_SIGNED, _QUEUE_READ),
    _R.GET_MIN_OFFSET: (_SIGNED, _QUEUE_READ),
    _R.GET_RECOVERED_OFFSET: (_SIGNED, _QUEUE_READ),
    _R.SEARCH_OFFSET_BY_TIMESTAMP: (_SIGNED, _QUEUE_READ),
    _R.GET_EARLIEST_MSG_STORETIME: (_SIGNED, _QUEUE_READ),
    _R.GET_TOPIC_STATS_INFO: (_SIGNED, _QUEUE_READ),
    _R.GET_TOPIC_CONFIG: (_SIGNED, _QUEUE_READ),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: (_SIGNED, _all_of(_group("group"))),
    _R.GET_CONSUME_STATS: (_SIGNED, _OF_GROUP),
    _R.GET_CONSUMER_CONNECTION_LIST: (_SIGNED, _OF_GROUP),
    # Changes by administrators.
    _R.UPDATE_AND_CREATE_TOPIC: _ADMIN_ALWAYS,
    _R.DELETE_TOPIC_IN_BROKER: _ADMIN_ALWAYS,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMIN_ALWAYS,
    _R.DELETE_SUBSCRIPTIONGROUP: _ADMIN_ALWAYS,
    _R.UPDATE_BROKER_CONFIG: _ADMIN_ALWAYS,
    **dict.fromkeys(
        (
            _R.UPDATE_AND_CREATE_ACL_CONFIG,
            _R.DELETE_ACL_CONFIG,
            _R.GET_BROKER_CLUSTER_ACL_INFO,
            _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            _R.GET_BROKER_CLUSTER_ACL_CONFIG,
            _R.RESUME_CHECK_HALF_MESSAGE,
            _R.INVOKE_BROKER_TO_RESET_OFFSET,
            _R.CLONE_GROUP_OFFSET,
            _R.TRIGGER_DELETE_FILES,
            _R.CLEAN_EXPIRED_CONSUMEQUEUE,
            _R.CLEAN_UNUSED_TOPIC,
            _R.DELETE_EXPIRED_COMMITLOG,
            # Questions of administrators, among them those that the broker forwards to a client.
            _R.GET_BROKER_CONFIG,
            _R.GET_BROKER_RUNTIME_INFO,
            _R.GET_ALL_TOPIC_CONFIG,
            _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            _R.GET_ALL_CONSUMER_OFFSET,
            _R.GET_ALL_DELAY_OFFSET,
            _R.GET_ALL_PRODUCER_INFO,
            _R.GET_PRODUCER_CONNECTION_LIST,
            _R.GET_BROKER_CONSUME_STATS,
            _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            _R.QUERY_TOPIC_CONSUME_BY_WHO,
            _R.QUERY_CONSUME_TIME_SPAN,
            _R.QUERY_CORRECTION_OFFSET,
            _R.VIEW_BROKER_STATS_DATA,
            _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            _R.GET_CONSUMER_RUNNING_INFO,
            _R.CONSUME_MESSAGE_DIRECTLY,
        ),
        _ADMIN_ONLY_STRICT,
    ),
    # From a broker to its clients: a broker that gets one answers that it is not supported.
    **dict.fromkeys(
        (
            _R.CHECK_TRANSACTION_STATE,
            _R.NOTIFY_CONSUMER_IDS_CHANGED,
            _R.RESET_CONSUMER_CLIENT_OFFSET,
            _R.GET_CONSUMER_STATUS_FROM_CLIENT,
            _R.PUSH_REPLY_MESSAGE_TO_CLIENT,
            _R.LOCKS_RELEASED,
        ),
        _ANY_SIGNED,
    ),
    # Of name servers: a broker answers that they are not supported; NAME_SERVER_ADMIN has the rules of a name server.
    **dict.fromkeys(
        (
            _R.PUT_KV_CONFIG,
            _R.GET_KV_CONFIG,
            _R.DELETE_KV_CONFIG,
            _R.REGISTER_BROKER,
            _R.UNREGISTER_BROKER,
            _R.GET_ROUTEINFO_BY_TOPIC,
            _R.GET_BROKER_CLUSTER_INFO,
            _R.WIPE_WRITE_PERM_OF_BROKER,
            _R.ADD_WRITE_PERM_OF_BROKER,
            _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _R.DELETE_TOPIC_IN_NAMESRV,
            _R.GET_KVLIST_BY_NAMESPACE,
            _R.GET_TOPICS_BY_CLUSTER,
            _R.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            _R.GET_UNIT_TOPIC_LIST,
            _R.GET_HAS_UNIT_SUB_TOPIC_LIST,
            _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            _R.UPDATE_NAMESRV_CONFIG,
            _R.GET_NAMESRV_CONFIG,
            _R.QUERY_DATA_VERSION,
        ),
        _ANY_SIGNED,
    ),
}

# What a name server with strict checks serves to administrators alone. RocketMQ 4.9's name server has no ACL.
NAME_SERVER_ADMIN: Final = frozenset(
    {
        _R.REGISTER_BROKER,
        _R.UNREGISTER_BROKER,
        _R.PUT_KV_CONFIG,
        _R.DELETE_KV_CONFIG,
        _R.WIPE_WRITE_PERM_OF_BROKER,
        _R.ADD_WRITE_PERM_OF_BROKER,
        _R.DELETE_TOPIC_IN_NAMESRV,
        _R.UPDATE_NAMESRV_CONFIG,
        _R.GET_NAMESRV_CONFIG,
    }
)


def required_of(code: int, *, strict: bool) -> Requirement:
    """A code that is not in the table is not served; a signature is enough to hear that."""
    return REQUIRED_PERMISSIONS.get(code, _ANY_SIGNED)[strict]
