"""The trace format: a table of all fields and events. The reader checks records with it; `make docs` writes its page.

A trace is JSON lines, one record a line. `VERSION` is what `TraceWriter` writes into `v`; records of version 1 have no
`v`, `machine` and `boot`. Other events and fields are allowed and ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

__all__ = [
    "EVENTS",
    "FIELDS",
    "QUEUE_EVENTS",
    "SENT_LATER",
    "TIME_MOST_NS",
    "VERSION",
    "Event",
    "Field",
    "trace_page",
    "why_broken",
]

VERSION: Final = 2
# The outcome of a send that is no failure: the message waits for its time, and nobody knows its offset yet.
SENT_LATER: Final = "later"


class Field(NamedTuple):
    """One field of a record. `kind` is the JSON type: "integer", "text", "integer or text", or "list"."""

    name: str
    kind: str
    unit: str
    source: str
    meaning: str
    since: int = 1
    null: bool = False  # null is a value here; for other optional fields it means absent


class Event(NamedTuple):
    """One kind of record: its required and its optional fields, besides `event`, `wall_ms` and COMMON."""

    name: str
    must: tuple[str, ...]
    may: tuple[str, ...]
    meaning: str


FIELDS: Final = (
    Field("event", "text", "-", "the writer", "the kind of the record; see the table of events"),
    Field("wall_ms", "integer", "ms since 1970", "wall clock at the process start + `mono_ns` since", "time of the record; of a call, the time of its end"),
    Field("mono_ns", "integer", "ns", "CLOCK_BOOTTIME; counts sleep, begins anew with each boot", "the same time, on the clock of `machine` and `boot`"),
    Field("v", "integer", "-", "the writer", "the version of the format; absent means 1", 2),
    Field("machine", "text", "-", "a digest of /etc/machine-id, else a random id of the process", "the machine whose clock counted `mono_ns`", 2),
    Field("boot", "text", "-", "a digest of /proc/sys/kernel/random/boot_id, else a random id of the process", "the boot from which `mono_ns` counts", 2),
    Field("host", "text", "-", "the address in the client id", "a name for people; two machines may share one"),
    Field("client_id", "text", "-", "the client's configuration", "the process that wrote the record"),
    Field("group", "text", "-", "the client's configuration", "the consumer group; of `sent` the producer group"),
    Field("topic", "text", "-", "the message queue", "topic of the queue"),
    Field("broker", "text", "-", "the message queue", "broker name of the queue"),
    Field("queue_id", "integer", "-", "the message queue", "number of the queue in its topic and broker"),
    Field("period", "integer", "-", "counts up in each consumer process", "the ownership period: from one grant of the lock to its end"),
    Field("offset", "integer", "messages", "the broker", "offset in the queue; of commits and positions, the next one to handle"),
    Field("key", "text", "-", "the message's sharding key", "messages of one key stay in order; null: no key", null=True),
    Field("msg_id", "text", "-", "the producer (UNIQ_KEY)", "id of the message, equal for all tries of one send"),
    Field("status", "text", "-", "the listener's answer", "SUCCESS, COMMIT, ROLLBACK, SUSPEND_CURRENT_QUEUE_A_MOMENT, RECONSUME_LATER, CONSUME_SUCCESS"),
    Field("begin_wall_ms", "integer", "ms since 1970", "as `wall_ms`", "wall-clock time at which the call began"),
    Field("begin_mono_ns", "integer", "ns", "as `mono_ns`", "when the call began; read before the check of the lock"),
    Field("reconsume_times", "integer", "-", "the message", "number of earlier attempts"),
    Field("ordering", "text", "-", "the consumer's mode", "absent: queue order; `key`: order by key; `none`: concurrent"),
    Field("epoch", "integer or text", "-", "the broker's grant (fenced lock)", "grows with every period of a queue; text is `boot-counter`", 2),
    Field("outlived_ms", "integer", "ms", "the client's lease (fenced lock)", "a call that ran on so long beyond its lease, or after its lock was lost; at least 1", 2),
    Field("pop_ms", "integer", "ms since 1970", "the broker's clock", "the time of the pop; names the delivery, with offset and client", 2),
    Field("invisible_ms", "integer", "ms", "the pop, or the request that changed it", "how long nobody else gets the message; 0 in `renewed`: it was given back", 2),
    Field("why", "text", "-", "the writer", "the reason, as text for people"),
    Field("strategy", "text", "-", "the consumer's configuration", "which strategy shares the queues among the members", 2),
    Field("members", "list", "-", "a broker", "client ids of the group, sorted, in the first record of a process for the topic; later ones have `joined` and `left`. Empty: broadcasting", 2),
    Field("joined", "list", "-", "the member lists of two rounds", "client ids that are new since the last round", 2),
    Field("left", "list", "-", "the member lists of two rounds", "client ids that are gone since the last round", 2),
    Field("share_before", "list", "-", "the strategy", "the queues of this member in the last round, each `BROKER:QUEUE_ID`; in older traces", 2),
    Field("share_after", "list", "-", "the strategy", "the queues of this member in this round: `BROKER:QUEUE_ID` or `BROKER:FIRST-LAST`", 2),
    Field("queues", "list", "-", "the rebalance", "what it did with each queue that it did not only keep: an object with `broker`, `queue_id`, `did` (locked, refused, dropped, draining, unlocked_later; in older traces also kept) and `why`; `epoch` of a fenced grant, `owner` (the client that has or gets the queue) and `wait_ms` if they are known", 2),
    Field("outcome", "text", "-", "the producer", "`refused`: not stored; `unknown`: perhaps stored; `not_sent`; `later`: no failure, the message waits for its time"),
)  # fmt: skip

_QUEUE = ("group", "topic", "broker", "queue_id")
COMMON: Final = ("mono_ns", "v", "machine", "boot", "host", "client_id")

EVENTS: Final = (
    Event("acquired", (*_QUEUE, "client_id"), ("period", "epoch", "ordering"), "the lock was granted: an ownership period begins"),
    Event("positioned", (*_QUEUE, "client_id", "offset"), ("period", "epoch"), "the first offset that will be pulled, as the broker stored it"),
    Event("handled", (*_QUEUE, "client_id", "offset", "status"), ("period", "key", "msg_id", "begin_wall_ms", "begin_mono_ns", "reconsume_times", "ordering", "epoch", "outlived_ms", "pop_ms"), "a listener call returned; one record a message, all of one call with the same begin"),
    Event("delivered", (*_QUEUE, "client_id", "offset", "pop_ms", "invisible_ms"), ("key", "msg_id", "reconsume_times", "begin_mono_ns", "epoch"), "the answer of a pop has the message (groups of RocketMQ 5); `begin_mono_ns`: the pop was sent; `epoch`: the broker refuses answers to all but the newest delivery"),
    Event("acked", (*_QUEUE, "client_id", "offset", "pop_ms"), ("begin_mono_ns",), "the broker answered that the message of a delivery is consumed"),
    Event("refused", (*_QUEUE, "client_id", "offset", "pop_ms"), ("begin_mono_ns",), "the broker answered that the delivery has ended"),
    Event("renewed", (*_QUEUE, "client_id", "offset", "pop_ms", "invisible_ms"), ("begin_mono_ns",), "the broker answered that the invisible time begins anew"),
    Event("committed", (*_QUEUE, "client_id", "offset"), ("period", "epoch", "begin_mono_ns"), "an offset is about to be sent to the broker; with `begin_mono_ns` (fenced lock): it was sent then, and the broker took it"),
    Event("stored", (*_QUEUE, "offset"), ("period", "epoch"), "the broker has stored a committed offset"),
    Event("reset", (*_QUEUE, "offset"), ("period", "epoch"), "the offset was moved on purpose, or because it was illegal; without `client_id`: a broker came back from a crash, and this offset of the group is left"),
    Event("lock_lost", (*_QUEUE, "client_id"), ("period", "why", "epoch"), "the broker refused to renew the lock, or its lease ended"),
    Event("dropped", (*_QUEUE, "client_id"), ("period", "why", "epoch"), "the period is over; a call that runs may still end"),
    Event("dead_lettered", (*_QUEUE, "offset"), ("period", "key", "msg_id", "epoch", "begin_mono_ns"), "the message is in the dead-letter topic"),
    Event("sent_back", (*_QUEUE, "offset"), ("period", "key", "msg_id", "epoch"), "the message is in the retry topic (concurrent consumers)"),
    Event("sent", ("topic", "broker", "queue_id", "offset"), ("group", "key", "msg_id"), "a producer's send was answered: the message is stored at this offset"),
    Event("send_failed", ("topic", "outcome"), ("group", "key", "msg_id"), "a producer's send failed, or its outcome or its offset is unknown"),
    Event("rebalanced", ("group", "topic", "client_id"), ("strategy", "members", "joined", "left", "share_before", "share_after", "queues"), "a round of the rebalance changed something in this topic; the judge of order does not use it"),
    Event("broker_restarted", (), ("broker",), "a broker came back with an empty store; without `broker`: every broker"),
    Event("closed", (), ("group",), "the writer closed the file in an orderly shutdown: no record is missing"),
)  # fmt: skip

QUEUE_EVENTS: Final = frozenset({
    "acquired", "positioned", "handled", "committed", "stored", "reset", "lock_lost", "dropped", "dead_lettered",
    "sent_back", "delivered", "acked", "refused", "renewed",
})  # fmt: skip
"""The events of a consumer group and a queue: the judge of a queue takes them."""

_BY_NAME: Final = {field.name: field for field in FIELDS}
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "integer": (int,),
    "text": (str,),
    "integer or text": (int, str),
    "list": (list,),
}
_NONE: Final = type(None)
TIME_MOST_NS: Final = 1 << 61
"""Of a monotonic clock: sums of times fit 64 bits."""
_MOST: Final = {
    "wall_ms": (1 << 62) // 1_000_000,
    "mono_ns": TIME_MOST_NS,
    "begin_mono_ns": TIME_MOST_NS,
    "offset": 1 << 62,
    "pop_ms": (1 << 62) // 1_000_000,
    "invisible_ms": (1 << 62) // 1_000_000,
}
# Type combinations of each event whose result is cached.
_TYPES_KEPT: Final = 1000


def _checker(event: Event | None) -> Callable[[Mapping[str, Any]], str | None]:
    """Make a check of the field types of an event's records. It returns an error text or None, and has a cache."""
    must = ("wall_ms", *(event.must if event else ()))
    may = [*COMMON, *(event.may if event else ())]
    if event is not None and event.name in QUEUE_EVENTS:
        # The judge of epochs reads it in each of them.
        may.append("begin_mono_ns")
    names = (*must, *(name for name in dict.fromkeys(may) if name not in must))
    kept: dict[tuple[type, ...], str | None] = {}
    with_offset = "offset" in must
    limits = [(name, most) for name, most in _MOST.items() if name in names]

    def check(record: Mapping[str, Any]) -> str | None:
        types = tuple(map(type, map(record.get, names)))
        why = kept.get(types, "")
        if why == "":
            why = _why(names, len(must), types)
            if len(kept) < _TYPES_KEPT:
                kept[types] = why
        if why is None and with_offset and record["offset"] < 0:
            return f"offset is {record['offset']}, and must not be negative"
        if why is None:
            for name, most in limits:
                value = record.get(name)
                if value is not None and not -most <= value <= most:
                    return f"{name} must be from -{most} to {most}"
        return why

    return check


def _why(names: tuple[str, ...], must: int, types: tuple[type, ...]) -> str | None:
    for place, (name, found) in enumerate(zip(names, types, strict=True)):
        field = _BY_NAME[name]
        if found is _NONE:
            if place < must:
                return f"{name} is missing"
        elif found not in _ALLOWED[field.kind]:
            return f"{name} must be {field.kind}"
    return None


_CHECKS: Final = {event.name: _checker(event) for event in EVENTS}
_CHECK_UNKNOWN: Final = _checker(None)


def why_broken(record: Any) -> str | None:
    """Why this is not a trace record; None if it is one. A record of an unknown event needs only `wall_ms`."""
    if type(record) is not dict:
        return "not a JSON object"
    event = record.get("event")
    if type(event) is not str:
        return "event is missing"
    return _CHECKS.get(event, _CHECK_UNKNOWN)(record)


def trace_page() -> str:
    """The page of the format, in Markdown."""
    lines = [
        "# The trace format",
        "",
        f"A trace is a file of JSON lines, one record a line, in the order in which one process wrote them. This is version {VERSION}. Version 1 had no `v`,",
        "`machine` and `boot`, and no event `closed`; it is read as well. A reader skips events and fields that it does not know, and counts a line",
        "that is no record as broken, with its file, number and reason. The last line of a killed process may be torn.",
        "",
        "## Fields",
        "",
        "| field | type | unit | source | meaning | since |",
        "|---|---|---|---|---|---|",
        *[f"| `{f.name}` | {f.kind}{' or null' if f.null else ''} | {f.unit} | {f.source} | {f.meaning} | {f.since} |" for f in FIELDS],
        "",
        "## Events",
        "",
        f"Every record has `event` and `wall_ms`, and may have {', '.join(f'`{name}`' for name in COMMON)}.",
        "",
        "| event | must have | may have | meaning |",
        "|---|---|---|---|",
        *[f"| `{e.name}` | {_names(e.must)} | {_names(e.may)} | {e.meaning} |" for e in EVENTS],
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _names(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names) or "-"
