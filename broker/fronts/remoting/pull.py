"""PULL_MESSAGE: checks, response codes, and held pulls (wire.md 6)."""

import json
from functools import lru_cache
from typing import Final, NamedTuple

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.commit import commit_of_reader
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.refusal import Refusal, check_filters_by
from lockstep.broker.messages.filters import compiled
from lockstep.broker.messages.held_pulls import HeldPull
from lockstep.broker.ownership.denial import Act
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import Permission, PullSysFlag, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import FilterError, is_tag_type, tags_code
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import OFFSET_MOVED_EVENT
from lockstep.store import GetResult, GetStatus, Passes, Record, StoreFull

__all__ = ["pull_message", "sweep_held_pulls", "wake_held_pulls"]

_COMMIT: Final = int(PullSysFlag.COMMIT_OFFSET)
_PULL: Final = Act.PULL
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_BULK: Final = int(PullSysFlag.BULK)
_READ: Final = int(Permission.READ)
_SHORT_POLLING_MS: Final = 1000
_MASTER_ID: Final = 0
_PULLS_A_STEP: Final = 32
# Our limit: expressions are cached, and a frame may have 16 MiB.
_EXPRESSION_LENGTH_MAX: Final = 32_767

# Half the cost of a NamedTuple's own constructor.
_FOUND: Final = GetStatus.FOUND
# Looked up once: in an enum it costs as much as a call.
_FOUND_NAME: Final = GetStatus.FOUND.name
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_CODES: Final[dict[GetStatus, int]] = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,  # at offset 0: PULL_NOT_FOUND
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,  # likewise
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


def pull_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer | None:
    """Answer with messages, or hold the pull until a message arrives or its wait time is over."""
    header = command.decode_header(PullMessageRequestHeader)
    subscription, passes = _filter(broker, header, _check_group_and_queue(broker, header, now_ms))
    wait_ms = header.suspend_timeout_millis if broker.config.long_polling else _SHORT_POLLING_MS
    # The fields of a `HeldPull`, in its order.
    pull = HeldPull(
        connection,
        command,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.max_msg_nums,
        subscription,
        now_ms + wait_ms,
        header.consumer_group,
        passes,
        None,
        header.sys_flag & _BULK != 0,
    )
    denial = broker.ownership.deny(connection, header, _PULL, now_ms)
    if denial is not None:
        # A client that knows epochs learns at once that it is no owner. An unmodified one would pull again at once: its
        # pull is held instead, or answered with nothing new.
        if header.lock_epoch is not None:
            raise Refusal(denial.code, denial.remark)
        held = _to_hold(broker, pull, header)
        return broker.messages.refused_pulls.refuse(held, may_wait=_may_wait(header, command))
    # First the commit, then the read: a pull that is held has committed too (wire.md 6.4).
    if header.sys_flag & _COMMIT:
        commit_of_reader(broker, connection, header, header.commit_offset, now_ms)
    result, code = _read(broker, pull)
    # Only PULL_NOT_FOUND may wait: every other answer changes what the client does next (wire.md 6.4).
    if code == _NOT_FOUND and _may_wait(header, command):
        return _park(broker, _to_hold(broker, pull, header), now_ms)
    reply = _reply(broker, pull, result, code, now_ms)
    return After(reply, What.LOG) if code == _MOVED else reply


def _may_wait(header: PullMessageRequestHeader, command: RemotingCommand) -> bool:
    return header.sys_flag & _SUSPEND != 0 and not command.is_one_way


def _park(broker: Broker, pull: HeldPull, now_ms: int) -> RemotingCommand | None:
    """Hold the pull. Returns its answer when too many pulls are held already."""
    hold = broker.messages.hold
    if hold.park(pull):
        return None
    broker.limits.met(*hold.limit, now_ms, pull.connection.address)
    return hold.no_room(pull.command)


def _to_hold(broker: Broker, pull: HeldPull, header: PullMessageRequestHeader) -> HeldPull:
    """The pull without the fields of its request, which may be long. The reply needs none, a check a few."""
    command = pull.command
    # A peer chooses the length of these fields, and thousands of pulls may wait.
    command.body, command.ext_fields, command.positional = b"", None, None
    claim = broker.ownership.claim_to_hold(header)
    return pull if claim is None else pull._replace(claim=claim)


def _read(broker: Broker, pull: HeldPull) -> tuple[GetResult, int]:
    """What the store has for a pull, counted in the statistics, and the response code."""
    result = broker.messages.store.get(
        pull.topic, pull.queue_id, pull.queue_offset, pull.max_msg_nums, pull.subscription, pull.passes, bulk=pull.bulk
    )
    if result.message_count:
        broker.stats.on_got(pull.consumer_group, pull.topic, pull.queue_id, result.message_count, len(result.body))
    else:
        broker.stats.missed += 1
    status = result.status
    if status is _FOUND:
        return result, _SUCCESS
    # From offset 0 of an empty queue there is nothing to correct; from any other offset the client must move (wire.md
    # 6.3).
    if pull.queue_offset == 0 and status in _EMPTY:
        return result, _NOT_FOUND
    return result, _CODES[status]


def _reply(broker: Broker, pull: HeldPull, result: GetResult, code: int, now_ms: int) -> RemotingCommand:
    if code == _MOVED:
        _record_offset_moved(broker, pull, result, now_ms)
    header = PullMessageResponseHeader(_MASTER_ID, result.next_begin_offset, result.min_offset, result.max_offset)
    # Administrators' tools read the name of the store's status in the remark (wire.md 6.3).
    remark = _FOUND_NAME if code == _SUCCESS else result.status.name
    return pull.command.reply(code, header, result.body, remark=remark)


def _record_offset_moved(broker: Broker, pull: HeldPull, result: GetResult, now_ms: int) -> None:
    """Store in topic OFFSET_MOVED_EVENT that an offset was out of bounds: RocketMQ's record for administrators.

    The tag and the key are the group. The pull is answered even if the event cannot be stored (wire.md 6.3).
    """
    group = pull.consumer_group
    broker.log.warning(
        "offset_out_of_bounds",
        group=group,
        topic=pull.topic,
        queue_id=pull.queue_id,
        asked_offset=pull.queue_offset,
        next_offset=result.next_begin_offset,
    )
    content = {
        "consumerGroup": group,
        "messageQueue": {"brokerName": broker.config.broker_name, "queueId": pull.queue_id, "topic": pull.topic},
        "offsetNew": result.next_begin_offset,
        "offsetRequest": pull.queue_offset,
    }
    body = json.dumps(content, separators=(",", ":")).encode("utf-8")
    texts = {names.TAGS: group, names.DELAY: "0", names.KEYS: group}
    properties = encode_properties(texts).encode("utf-8", "replace")
    host, port = broker.messages.store.store_host, broker.messages.store.store_port
    record = Record(OFFSET_MOVED_EVENT, 0, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, tags_code(group))
    try:
        broker.messages.put(record)
    except StoreFull as why:
        broker.log.error("offset_moved_event_not_stored", topic=OFFSET_MOVED_EVENT, reason=str(why))


# Checks, in RocketMQ's order (wire.md 6.2) ----------------------------------------------------------------------


def _check_group_and_queue(broker: Broker, header: PullMessageRequestHeader, now_ms: int) -> SubscriptionGroupConfig:
    # Check 1 of wire.md 6.2.
    if not broker.config.broker_permission & _READ:
        raise Refusal(ResponseCode.NO_PERMISSION, "the broker may not be read")
    group = broker.catalog.groups.find(header.consumer_group, now_ms)
    # Check 2: the group.
    if group is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, broker.catalog.groups.why_absent(header.consumer_group)
        )
    if not group.consume_enable:
        raise Refusal(ResponseCode.NO_PERMISSION, f"consumer group {group.group_name!r} may not consume")
    config = broker.catalog.topics.get(header.topic)
    # Check 3: the topic and the queue.
    if config is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic!r} does not exist here")
    if not config.perm & _READ:
        raise Refusal(ResponseCode.NO_PERMISSION, f"topic {header.topic!r} may not be read")
    if not 0 <= header.queue_id < config.read_queue_nums:
        remark = f"topic {header.topic!r} has read queues 0 to {config.read_queue_nums - 1}, not {header.queue_id}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return group


class _Filter(NamedTuple):
    """Which messages a pull wants: those with the tags, or those that `passes` accepts."""

    subscription: SubscriptionData
    passes: Passes | None = None


def _filter(broker: Broker, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> _Filter:
    # Check 4: the text in the request counts, or else what the group's heartbeats registered.
    if header.sys_flag & _SUBSCRIPTION:
        return _filter_of_request(broker, header)
    subscription = _registered_subscription(broker, header, group)
    if is_tag_type(subscription.expression_type):
        return _Filter(subscription)
    # Check 5: SQL92 needs the setting enablePropertyFilter.
    check_filters_by(broker.config, subscription.expression_type)
    known = broker.messages.filters.find(header.consumer_group, header.topic)
    if known is None:
        remark = f"the expression of topic {header.topic!r} is invalid: {short_text(subscription.sub_string)}"
        raise Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    # The heartbeat with the newer subscription is still on its way; the client pulls again after a while.
    if known.sub_version < header.sub_version:
        remark = f"the filter here has version {known.sub_version}, the request {header.sub_version}"
        raise Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
    return _Filter(subscription, known.passes)


def _filter_of_request(broker: Broker, header: PullMessageRequestHeader) -> _Filter:
    """The filter in the request itself, as pull consumers send it."""
    if header.subscription and len(header.subscription) > _EXPRESSION_LENGTH_MAX:
        remark = f"the expression has over {_EXPRESSION_LENGTH_MAX} characters, more than the broker keeps"
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
    try:
        if is_tag_type(header.expression_type):
            return _Filter(_parsed(header.topic, header.subscription))
        if not header.subscription:
            raise FilterError(f"an expression of type {short_text(header.expression_type)} must not be empty")
        check_filters_by(broker.config, header.expression_type)
        passes = compiled(header.expression_type or "", header.subscription)
        return _Filter(SubscriptionData(header.topic, header.subscription), passes)
    except FilterError as error:
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _registered_subscription(
    broker: Broker, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
) -> SubscriptionData:
    group = broker.members.consumers.groups.get(header.consumer_group)
    # A push consumer sends its heartbeat to this broker before its first pull, so this is the usual early error.
    if group is None:
        remark = f"no consumer of group {header.consumer_group!r} is registered here"
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if not config.consume_broadcast_enable and group.message_model is MessageModel.BROADCASTING:
        raise Refusal(ResponseCode.NO_PERMISSION, f"consumer group {config.group_name!r} may not consume by broadcast")
    subscription = group.subscriptions.get(header.topic)
    if subscription is None:
        remark = f"group {header.consumer_group!r} does not subscribe to topic {header.topic!r}"
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
    if subscription.sub_version < header.sub_version:
        remark = f"the subscription here has version {subscription.sub_version}, the request {header.sub_version}"
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
    return subscription


@lru_cache(maxsize=1024)
def _parsed(topic: str, expression: str | None) -> SubscriptionData:
    return SubscriptionData.parse(topic, expression)


# Held pulls ------------------------------------------------------------------------------------------------------


def wake_held_pulls(broker: Broker, now_ms: int) -> None:
    """Called at the end of a read: answer the held pulls that the stored messages match."""
    arrived = broker.messages.hold.take_arrived(
        lambda topic, queue_id, at: broker.messages.store.get(topic, queue_id, at, 1, None).body
    )
    _run_all(broker, arrived, now_ms)


def sweep_held_pulls(broker: Broker, now_ms: int) -> None:
    """Called every 5 s: answer held pulls with newer messages of any tag, and those whose wait time is over."""
    _run_all(broker, broker.messages.hold.sweep(now_ms, broker.messages.store.max_offset), now_ms)
    broker.messages.refused_pulls.sweep(now_ms)


def _run_all(broker: Broker, pulls: list[HeldPull], now_ms: int) -> None:
    """Answer the first pulls at once and the others in steps: thousands of peers may wait for one message."""
    for pull in pulls[:_PULLS_A_STEP]:
        _run_again(broker, pull, now_ms)
    if len(pulls) > _PULLS_A_STEP:
        broker.work.start(broker.messages.hold, _run_in_steps(broker, pulls, now_ms))


def _run_in_steps(broker: Broker, pulls: list[HeldPull], now_ms: int) -> Steps:
    for start in range(_PULLS_A_STEP, len(pulls), _PULLS_A_STEP):
        for pull in pulls[start : start + _PULLS_A_STEP]:
            # The peer may have gone since an earlier step. A reply to it is dropped anyway; this saves the read.
            if pull.connection.is_open:
                _run_again(broker, pull, now_ms)
        yield None


def _run_again(broker: Broker, pull: HeldPull, now_ms: int) -> None:
    """Answer a held pull, with or without messages: a pull is held once, and its offset is committed already.

    A pull is only held again if its connection stopped reading while this loop answered its other pulls.
    """
    if pull.connection.write_paused:
        # The peer does not take the answers that it has. Another one would only wait in memory.
        broker.messages.hold.park(pull)
        return
    if broker.messages.refused_pulls.has_ended(pull, now_ms):
        return
    pull.connection.reply(_reply(broker, pull, *_read(broker, pull), now_ms))
