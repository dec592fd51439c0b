"""Cases of receives, acknowledgements, changes and dead letters."""

from collections.abc import Callable
from typing import Any, Final

from tests.differential.grpc.player import Player
from tests.differential.grpc.sends import at
from tests.differential.grpc.steps import (
    IN_ORDER,
    Ask,
    Case,
    Clock,
    Join,
    Step,
    Tell,
    Until,
    ack,
    change,
    forward,
    group_of,
    message,
    polled,
    push,
    receive,
    send,
    sends,
    simple,
    topic_of,
)

__all__ = ["RECEIVES"]

NO_TOPIC: Final = {"client_type": "SIMPLE_CONSUMER", "subscription": group_of()}
NOW: Final = send(message(), seen=False)  # one message


def _case(name: str, *steps: Step, **more: Any) -> Case:
    return Case("receive", name, steps, **more)


def _one(name: str, *asked: Ask, **more: Any) -> Case:
    """What is asked, where there is one message."""
    return _case(name, simple(), NOW, *asked, **more)


def _filter(kind: str, expression: str) -> Any:
    return {"type": kind, "expression": expression}


TAGGED: Final[tuple[Step, ...]] = (
    simple(),
    *(send(message(b"m%d" % n, user={"a": str(n)}, tag=tag), seen=False)
      for n, tag in enumerate(("x", "y", "z"))),
)  # fmt: skip
RICH: Final[dict[str, Any]] = {"tag": "t", "keys": ["k1", "k2"], "trace_context": "trace", "message_group": "g"}


def _filtered(name: str, kind: str, expression: str) -> Case:
    return _case(name, *TAGGED, receive(filter_expression=_filter(kind, expression)))


RECEIVED: Final = (
    _case("none-40401", simple(), Clock(), receive(timed=True)),
    *(_one(f"batch-{count}", receive(count)) for count in (0, -1)),
    _one("invisible-missing", receive(invisible_duration=None)),
    *(_one(f"invisible-{seconds:g}", receive(invisible_s=seconds)) for seconds in (9.999, 10, 43200, 43201, 0, -1)),
    _case("polling-0-becomes-5", simple(), Clock(), receive(poll_s=0, timed=True)),
    _case("polling-1-becomes-5", simple(), Clock(), receive(poll_s=1, timed=True)),
    _case("polling-7", simple(), Clock(), receive(poll_s=7, timed=True)),
    _case("polling-25-becomes-20", simple(), Clock(), receive(poll_s=25, timed=True)),
    _case("polling-negative", simple(), Clock(), receive(poll_s=-1, timed=True)),
    _case("deadline-short", simple(), Clock(), receive(timeout_s=3)),
    _case("deadline-short-old-client", simple(), receive(timeout_s=3, metadata={"client_version": "5.0.2"})),
    _case("deadline-short-new-client", simple(), receive(timeout_s=3, metadata={"client_version": "5.2.0"})),
    _case("deadline-before-polling", simple(), Clock(), receive(poll_s=15, timeout_s=8, timed=True)),
    _case("deadline-without-polling", simple(), Clock(), receive(long_polling_timeout=None, timeout_s=9, timed=True)),
    _case("no-deadline-no-polling", simple(), Clock(), receive(long_polling_timeout=None, timeout_s=None)),
    _case("unknown-topic", simple(), receive(), queues=0),
    _one("unknown-group-created", receive(), in_order=None),
    _one("without-settings", receive(client="c2")),
    _one("push-without-settings", receive(client="c2", auto_renew=True, invisible_duration=None)),
    _case("topic-not-subscribed", Tell(NO_TOPIC, seen=False), NOW, receive()),
    _filtered("tag-one", "TAG", "y"),
    _filtered("tag-two", "TAG", "x || z"),
    _filtered("tag-none", "TAG", "w"),
    _filtered("tag-blank-is-all", "TAG", " "),
    _filtered("tag-empty-is-all", "TAG", ""),
    _filtered("tag-star", "TAG", "*"),
    _filtered("tag-bad", "TAG", "||"),
    _filtered("type-unspecified", "FILTER_TYPE_UNSPECIFIED", "y"),
    _filtered("sql-ok", "SQL", "a > 0"),
    _filtered("sql-text", "SQL", "a IN ('0', '2')"),
    _filtered("sql-tags", "SQL", "TAGS = 'y'"),
    _filtered("sql-bad", "SQL", "a >"),
    _filtered("sql-blank", "SQL", " "),
    _one("no-filter", receive(filter_expression=None)),
    _one("broker-any", receive(message_queue=topic_of() | {"broker": {"name": "broker-a"}})),
    _one("broker-unknown-any", receive(message_queue=topic_of() | {"broker": {"name": "broker-z"}})),
    _case(
        "queue-id-ignored", simple(), *sends("m0"),
        receive(message_queue=topic_of() | {"id": 3, "broker": {"name": "broker-a"}}),
        message_type="FIFO", queues=4, in_order=True,
    ),
    _case(
        "message-fields-all", simple(), send(message(b"m0", user={"a": "b"}, **RICH), seen=False), receive(whole=True),
        message_type="FIFO",
    ),
    _case(
        "message-fields-in-order", simple(), send(message(b"m0", user={"a": "b"}, **RICH), seen=False),
        receive(whole=True), message_type="FIFO", in_order=True,
    ),
    _one("message-fields-few", receive(whole=True)),
    _case("message-fields-no-type", simple(), NOW, receive(whole=True), message_type=""),
    _case(
        "born-of-sender", simple(),
        send(message(born_host="me", born_timestamp=at(-60)), seen=False), receive(whole=True),
    ),
    _case("properties-sharding-key-visible", simple(), *sends("m0"), receive(whole=True), message_type="FIFO"),
    _case(
        "batch-of-one-send", simple(), send(message(), message(b"m1", user={"a": "b"})), receive(whole=True),
    ),
    _case("retry-topic-asked", simple(), receive(message_queue=topic_of("%RETRY%$group"))),
    _case("push", push(), NOW, receive(auto_renew=True, invisible_duration=None)),
    _case("push-with-invisible", push(), NOW, receive(auto_renew=True, invisible_s=1)),
    _case("push-in-order", push(), *sends("m0", "m1"), receive(auto_renew=True, invisible_duration=None), in_order=True,
          message_type="FIFO"),
    _case("attempt-id", simple(), NOW, receive(attempt_id="one"), receive(attempt_id="one")),
    _case(
        "wakes-on-send", simple(), polled(later="w"), Until(1), Clock(), NOW, Join("w"),
    ),
)  # fmt: skip

# Acknowledge and change ------------------------------------------------------------------------------------------


def _acked(name: str, *steps: Step, **more: Any) -> Case:
    """With two messages received of a topic in order."""
    first = (simple(), *sends("m0", "m1"), receive(2, seen=False))
    return Case("ack", name, (*first, *steps), **IN_ORDER | more)


def _changed_handle(**fields: Any) -> Callable[[Player], str]:
    """The handle of m0 with other numbers: start, pop, invisible, revive, kind, broker, queue, offset, place."""
    names = ("start", "pop", "invisible", "revive", "kind", "broker", "queue", "offset", "place")

    def filled(player: Player) -> str:
        words = player.handles["m0"][-1].split(" ")
        for name, value in fields.items():
            words[names.index(name)] = str(value)
        return " ".join(words)

    return filled


def _with(asked: Ask, handle: Any) -> Ask:
    """The same with another handle."""
    fields = asked.fields
    if "entries" in fields:
        return asked._replace(fields={**fields, "entries": [{"message_id": "m0", "receipt_handle": handle}]})
    return asked._replace(fields={**fields, "receipt_handle": handle})


HANDLES: Final = {
    "garbage": "garbage",
    "empty": "",
    "short": "0 1 2 3",
    "text": "a b c d e f g h i",
    "wrong-queue": _changed_handle(queue=77),
    "wrong-offset": _changed_handle(offset=99999),
    "wrong-pop": _changed_handle(pop=3_000_000_000_000),
    "other-broker": _changed_handle(broker="zz"),
    "expired": _changed_handle(pop=1_000_000_000_000),
    "more-fields": lambda player: player.handles["m0"][-1] + " 1 2 3",
    "eight-fields": lambda player: player.handles["m0"][-1].rpartition(" ")[0],
}
AGAIN: Final = receive(2, client="c1")
ACKS: Final = (
    _acked("one", ack("m0"), AGAIN),
    _acked("many", ack("m0", "m1"), *sends("m2"), AGAIN),
    _acked("second-only", ack("m1"), AGAIN),
    _acked("none", ack()),
    _acked("twice", ack("m0"), ack("m0")),
    _acked("twice-in-one", ack("m0", "m0")),
    _acked("twice-after-all", ack("m0", "m1"), ack("m0")),
    _acked("plain-twice", ack("m0"), ack("m0"), in_order=False),
    _acked("plain-many", ack("m0", "m1"), in_order=False),
    _acked("other-group", ack("m0")._replace(fields=ack("m0").fields | group_of("Other"))),
    _acked("other-topic", ack("m0")._replace(fields=ack("m0").fields | topic_of("Other"))),
    _acked("other-client", simple("c2"), ack("m0", client="c2")),
    _acked("without-settings", ack("m0", client="c2")),
    _acked("message-id-ignored", ack("m0")._replace(
        fields=group_of() | topic_of() | {"entries": [{"message_id": "x", "receipt_handle": "$handle(m0)"}]})),
    *(_acked(name, _with(ack("m0"), handle)) for name, handle in HANDLES.items()),
    *(_acked(f"plain-{name}", _with(ack("m0"), HANDLES[name]), in_order=False)
      for name in ("wrong-queue", "wrong-offset", "expired", "wrong-pop")),
    _acked("mixed-30000", ack("m0")._replace(fields=group_of() | topic_of() | {"entries": [
        {"message_id": "m0", "receipt_handle": "$handle(m0)"},
        {"message_id": "m1", "receipt_handle": _changed_handle(pop=1_000_000_000_000)}]})),
    _acked("expired-by-clock", Until(12), ack("m0")),
    _acked(
        "old-handle", change("m0", 0, seen=False), change("m1", 0, seen=False),
        receive(2, seen=False), ack("m0,0"), ack("m0"),
    ),
    Case(
        "ack", "auto-renew-first-handle",
        (push(), *sends("m0", "m1"), Clock(), receive(1, auto_renew=True, invisible_duration=None), Until(62),
         Ask("Heartbeat", group_of() | {"client_type": "PUSH_CONSUMER"}), ack("m0"), receive(1, auto_renew=True)),
        message_type="FIFO", in_order=True,
    ),
)  # fmt: skip


def _changed(name: str, *steps: Step, **more: Any) -> Case:
    case = _acked(name, *steps, **more)
    return Case("change", name, case.steps, message_type="FIFO", in_order=more.get("in_order", True))


def _alone(name: str, *steps: Step) -> Case:
    """With one message received of a topic in order."""
    first = (simple(), *sends("m0"), receive(1, seen=False), Clock())
    return Case("change", name, (*first, *steps), message_type="FIFO", in_order=True)


CHANGES: Final = (
    _alone("0", change("m0", 0), polled()),
    _alone("longer", change("m0", 14), polled()),
    _alone("shorter", change("m0", 3), polled()),
    _alone("12h", change("m0", 43200)),
    _alone("over-12h", change("m0", 43201)),
    _alone("negative", change("m0", -1)),
    _alone("missing", change("m0", 0, invisible_duration={})),
    _alone("expired-by-clock", Until(12), change("m0", 5)),
    _alone("new-handle-acks", change("m0", 30), ack("changed"), *sends("m1"), receive(1)),
    _alone("old-handle-acks", change("m0", 30), ack("m0"), *sends("m1"), receive(1)),
    _alone("twice-by-old-handle", change("m0", 30), change("m0", 3), polled()),
    _alone("twice-by-new-handle", change("m0", 30), change("changed", 3), polled()),
    _alone("suspend", change("m0", 0, suspend=True), polled()),
    _alone("after-ack", ack("m0"), change("m0", 5)),
    _alone("other-client", simple("c2"), change("m0", 3, client="c2"), polled()),
    _alone("without-settings", change("m0", 3, client="c2")),
    _changed("plain-shorter", Clock(), change("m0", 3), in_order=False),
    _changed("plain-new-handle-acks", change("m0", 30), ack("changed"), in_order=False),
    _changed("plain-twice", change("m0", 30), change("m0", 20), in_order=False),
    *(_changed(name, _with(change("m0", 30), handle)) for name, handle in HANDLES.items()),
    _changed("one-of-two", Clock(), change("m0", 0), polled(2)),
)

DEAD: Final = receive(message_queue=topic_of("%DLQ%$group"))
FORWARDS: Final = (
    _acked("dlq-acks-original", forward("m0", 16), receive(2), ack("m1"), *sends("m2"), receive(2)),
    _acked("dlq-attempts-missing", forward("m0", 0, 0)),
    _acked("dlq-twice", forward("m0"), forward("m0")),
    _acked("dlq-after-ack", ack("m0"), forward("m0")),
    _acked("dlq-expired-by-clock", Until(12), forward("m0")),
    _acked("dlq-content", forward("m0", 16), DEAD._replace(whole=True)),
    _acked("dlq-plain", forward("m0", 16), in_order=False),
    *(_acked(f"dlq-handle-{name}", _with(forward("m0"), handle)) for name, handle in HANDLES.items()),
)

RECEIVES: Final = (*RECEIVED, *ACKS, *CHANGES, *FORWARDS)
