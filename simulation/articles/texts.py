"""The texts of log events, requests and answers in a story: a row for each event, a function for each request."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.simulation.articles.narration import number
from lockstep.simulation.articles.tables import queue_name, queue_text
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.event_texts import EVENT_TEXTS, Focus
from lockstep.simulation.lab.request_log import Answered

__all__ = ["Sentence", "sentence_of_event", "sentence_of_late_reply", "sentence_of_request"]

Who = Callable[[str], str]


class Sentence(NamedTuple):
    focus: Focus
    text: str


# Log events -------------------------------------------------------------------------------------------------------

_OF_CLIENTS = ("client_id", "from_client_id", "owner", "peer")


def sentence_of_event(line: LogLine, who: Who) -> Sentence | None:
    """None: no section is about this event."""
    found = EVENT_TEXTS.get(line.event)
    if found is None or not found.story or (line.event == "lock_refused" and "client_id" not in line.fields):
        return None  # a client also logs a refusal; the answer to its request says the same
    fields = {name: _field(name, value, who) for name, value in line.fields.items()}
    of_retries = is_retry_topic(str(line.fields.get("queue", line.fields.get("topic", ""))))
    return Sentence(
        Focus.RETRY_QUEUE if of_retries and found.focus is not Focus.RETRIES else found.focus,
        found.story.format(**fields),
    )


def _field(name: str, value: object, who: Who) -> str:
    if name in _OF_CLIENTS:
        return who(str(value).partition(":")[0])
    if name == "queue":
        return queue_text(str(value))
    return number(value) if isinstance(value, int) else str(value)


# Requests ---------------------------------------------------------------------------------------------------------


def sentence_of_request(answered: Answered, who: Who) -> Sentence | None:
    """What a client asks and what it is answered; None: no section is about this request."""
    tell = _REQUESTS.get(answered.command.code)
    return tell(answered, who) if tell is not None else None


def sentence_of_late_reply(answered: Answered) -> Sentence | None:
    """The answer to a request that the server held: a pull."""
    if answered.command.code != RequestCode.PULL_MESSAGE or answered.reply is None:
        return None
    header = answered.command.decode_header(PullMessageRequestHeader)
    queue = _queue(header.topic, header.queue_id)
    text = f"answers the pull of {queue} that it held for {number(answered.waited_ms)} ms: {_pulled(answered, header)}"
    return Sentence(_focus(Focus.PULLS, header.topic), text)


def _focus(usual: Focus, topic: str) -> Focus:
    return Focus.RETRY_QUEUE if is_retry_topic(topic) else usual


def _queue(topic: str, queue_id: int) -> str:
    return queue_name(MessageQueue(topic, "", queue_id))


def _pull(answered: Answered, _who: Who) -> Sentence:
    header = answered.command.decode_header(PullMessageRequestHeader)
    commits = header.sys_flag & int(PullSysFlag.COMMIT_OFFSET)
    text = f"pulls {_queue(header.topic, header.queue_id)} from {number(header.queue_offset)}"
    if commits:
        text += f", commits {number(header.commit_offset)}"
    return Sentence(_focus(Focus.PULLS, header.topic), f"{text}: {_pulled(answered, header)}")


def _pulled(answered: Answered, asked: PullMessageRequestHeader) -> str:
    reply = answered.reply
    if reply is None:
        return f"nothing is there, the broker holds the pull for {number(asked.suspend_timeout_millis)} ms at most"
    if reply.code in (ResponseCode.SUCCESS, *_PULLED):
        last = reply.decode_header(PullMessageResponseHeader).next_begin_offset
        if reply.code != ResponseCode.SUCCESS:
            return f"{_PULLED[reply.code]}, next offset {number(last)}"
        count = last - asked.queue_offset
        return (
            f"messages {number(asked.queue_offset)} to {number(last - 1)}"
            if count > 1
            else f"message {number(last - 1)}"
        )
    return f"refused with {ResponseCode(reply.code).name}"


_PULLED: Final[Mapping[int, str]] = {
    ResponseCode.PULL_NOT_FOUND: "no new message",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "no message matches the tags",
    ResponseCode.PULL_OFFSET_MOVED: "the offset is illegal",
}


def _lock(answered: Answered, _who: Who) -> Sentence:
    body = decode_body(LockBatchBody, answered.command.body, answered.command.serialize_type)
    verb = "asks for the lock of" if answered.command.code == RequestCode.LOCK_BATCH_MQ else "unlocks"
    queues = sorted(body.mq_set)
    only_retries = all(is_retry_topic(queue.topic) for queue in queues)
    shown = [queue_name(queue) for queue in queues if only_retries or not is_retry_topic(queue.topic)]
    return Sentence(Focus.RETRY_QUEUE if only_retries else Focus.LOCKS, f"{verb} {', '.join(shown)}")


def _query(answered: Answered, _who: Who) -> Sentence:
    header = answered.command.decode_header(QueryConsumerOffsetRequestHeader)
    reply = answered.reply
    found = reply is not None and reply.code == ResponseCode.SUCCESS
    answer = number(reply.decode_header(OffsetResponseHeader).offset) if reply and found else "QUERY_NOT_FOUND"
    text = f"asks for the stored offset of {_queue(header.topic, header.queue_id)}: {answer}"
    return Sentence(_focus(Focus.OFFSETS, header.topic), text)


def _end(answered: Answered, _who: Who) -> Sentence:
    reply = answered.reply
    assert reply is not None
    which = "end" if answered.command.code == RequestCode.GET_MAX_OFFSET else "offset by time"
    return Sentence(Focus.OFFSETS, f"asks for the {which}: {number(reply.decode_header(OffsetResponseHeader).offset)}")


def _commit(answered: Answered, _who: Who) -> Sentence:
    header = answered.command.decode_header(UpdateConsumerOffsetRequestHeader)
    text = f"sends offset {number(header.commit_offset)} of {_queue(header.topic, header.queue_id)} to be stored"
    return Sentence(_focus(Focus.OFFSETS, header.topic), text)


def _members(answered: Answered, who: Who) -> Sentence:
    reply = answered.reply
    if reply is None or reply.code != ResponseCode.SUCCESS:
        return Sentence(Focus.MEMBERS, "asks for the members of the group: none")
    ids = decode_body(ConsumerIdList, reply.body, reply.serialize_type).consumer_id_list
    return Sentence(Focus.MEMBERS, f"asks for the members of the group: {', '.join(map(who, sorted(ids)))}")


def _send(answered: Answered, _who: Who) -> Sentence:
    header, reply = answered.command.decode_header(SendMessageRequestHeaderV2), answered.reply
    if reply is None or reply.code != ResponseCode.SUCCESS:
        return Sentence(_focus(Focus.SENDS, header.topic), "sends a message, and is refused")
    stored: Any = reply.decode_header(SendMessageResponseHeader)
    queue = _queue(header.topic, stored.queue_id)
    text = f"sends {answered.command.body.decode()!r} to {queue}: stored at offset {number(stored.queue_offset)}"
    return Sentence(Focus.RETRIES if is_retry_topic(header.topic) else Focus.SENDS, text)


def _send_back(answered: Answered, _who: Who) -> Sentence:
    header, reply = answered.command.decode_header(SendMessageBackRequestHeader), answered.reply
    level = f"delay level {header.delay_level}" if header.delay_level else "the delay that the broker chooses"
    stored = "accepted" if reply is not None and reply.code == ResponseCode.SUCCESS else "refused"
    return Sentence(Focus.RETRIES, f"sends a failed message back with {level}: {stored}")


def _route(answered: Answered, _who: Who) -> Sentence:
    topic = answered.command.decode_header(GetRouteInfoRequestHeader).topic
    return Sentence(_focus(Focus.MEMBERS, topic), f"asks the name server for the route of {topic}")


def _plain(focus: Focus, text: str) -> Callable[[Answered, Who], Sentence]:
    return lambda _answered, _who: Sentence(focus, text)


_REQUESTS: Final[Mapping[int, Callable[[Answered, Who], Sentence]]] = {
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
    RequestCode.QUERY_CONSUMER_OFFSET: _query,
    RequestCode.GET_MAX_OFFSET: _end,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _end,
    RequestCode.UPDATE_CONSUMER_OFFSET: _commit,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
    RequestCode.SEND_MESSAGE_V2: _send,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.HEART_BEAT: _plain(Focus.MEMBERS, "sends a heartbeat with its group and subscriptions"),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.UNREGISTER_CLIENT: _plain(Focus.MEMBERS, "unregisters from the broker"),
}
