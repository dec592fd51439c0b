"""Cases of sends, transactions, delayed messages and recall."""

import base64
import gzip
from typing import Any, Final

from tests.differential.grpc.player import Player
from tests.differential.grpc.steps import (
    Ask,
    Case,
    Clock,
    Drain,
    Hear,
    Step,
    Tell,
    message,
    polled,
    receive,
    send,
    simple,
    span,
    topic_of,
)

__all__ = ["SENDS"]

DAY_S: Final = 24 * 3600
LAST_S: Final = 60.0


def at(seconds: float) -> Any:
    """A timestamp so many seconds from now."""
    return lambda player: player.in_s(seconds)


def _case(name: str, *steps: Step, **more: Any) -> Case:
    return Case("send", name, steps, **more)


def _one(name: str, kind: str = "NORMAL", user: Any = None, body: bytes = b"m0", **system: Any) -> Case:
    return _case(name, send(message(body, user=user, **system)), message_type=kind)


TYPES: Final = {
    "normal": {},
    "fifo": {"message_group": "k"},
    "delay": {"delivery_timestamp": at(3600)},
    "transaction": {"message_type": "TRANSACTION"},
    "fifo-and-delay": {"message_group": "k", "delivery_timestamp": at(3600)},
}
PRODUCER: Final = Tell({"client_type": "PRODUCER", "publishing": {"topics": [{"name": "$topic"}]}}, seen=False)
CONTROL: Final = "a\x01b"
PLAIN: Final = (
    *(
        _one(f"type-matrix-{kind or 'none'}-{name}".lower(), kind, **system)
        for kind in ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION")
        for name, system in TYPES.items()
    ),
    *(
        _one(f"type-field-{kind}".lower(), message_type=kind)
        for kind in ("FIFO", "DELAY", "MESSAGE_TYPE_UNSPECIFIED", "LITE", "PRIORITY")
    ),
    _one("body-empty", body=b""),
    _one("body-4MiB", body=bytes(4 << 20), message_id="big"),
    _one("body-4MiB-plus-1", body=bytes((4 << 20) + 1), message_id="big"),
    _case("no-message", send()),
    _case("two-topics", send(message(), message(topic="Other"))),
    _one("id-missing", message_id=""),
    _one("id-blank", message_id=" "),
    _one("id-free-text", message_id="free text"),
    _one("tag", tag="a"),
    _one("tag-blank", tag=" "),
    _one("tag-empty", tag=""),
    _one("tag-bar", tag="a|b"),
    _one("tag-control", tag=CONTROL),
    _one("keys", keys=["a", "b"]),
    _one("key-blank", keys=[" "]),
    _one("key-control", keys=[CONTROL]),
    _one("key-space", keys=["a b"]),
    *(_one(f"group-{length}", "FIFO", message_group="g" * length) for length in (63, 64, 65)),
    _one("group-blank", "FIFO", message_group=" "),
    _one("group-empty", "FIFO", message_group=""),
    _one("group-control", "FIFO", message_group=CONTROL),
    _one("group-bytes", "FIFO", message_group="é" * 32),
    _one("property", user={"a": "b"}),
    *(
        _one(f"property-reserved-{name}".lower(), user={name: "x"})
        for name in ("KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "__SHARDINGKEY", "TIMER_DELIVER_MS", "POP_CK")
    ),
    _one("property-control", user={CONTROL: "x"}),
    _one("property-value-control", user={"a": CONTROL}),
    _one("property-blank-key", user={" ": "x"}),
    _one("property-empty-value", user={"a": ""}),
    *(_one(f"properties-{count}", user={f"p{n}": "v" for n in range(count)}) for count in (128, 129)),
    *(_one(f"properties-{size}", user={"p": "v" * (size - 1)}) for size in (16384, 16385)),
    _one("properties-with-tag-and-keys", user={"p": "v" * 16377}, tag="tag", keys=["key", "k"]),
    *(
        _one(f"delay-{name}", "DELAY", delivery_timestamp=at(seconds))
        for name, seconds in {"past": -60, "23h": DAY_S - 3600, "over": DAY_S + 60, "epoch": -1.6e9}.items()
    ),
    *(
        _one(
            f"orphan-{name}",
            "TRANSACTION",
            message_type="TRANSACTION",
            orphaned_transaction_recovery_duration=span(seconds),
        )
        for name, seconds in {"10s": 10, "1h": 3600, "1h-plus-1": 3601, "0": 0}.items()
    ),
    _case("unknown-topic", send(message()), queues=0),
    *(
        _case(f"topic-{name}", send(message(topic=topic)))
        for name, topic in {"blank": " ", "illegal": "a b", "128": "t" * 128, "system": "SCHEDULE_TOPIC_XXXX"}.items()
    ),
    _one("digest-wrong", body_digest={"type": "MD5", "checksum": "0"}),
    _one("digest-sha1", body_digest={"type": "SHA1", "checksum": "x"}),
    _one("trace-context", trace_context="00-1-2-03"),
    _one("gzip-body", body=gzip.compress(b"m0", mtime=0), message_id="m0", body_encoding="GZIP"),
    _case("after-telemetry", PRODUCER, send(message())),
    _case("batch-2-one-entry", send(message(), message(b"m1"))),
    _case("batch-then-offset", send(message(), message(b"m1"), seen=False), send(message(b"m2"))),
    _case("batch-of-a-transaction", send(message(), message(b"m1", message_type="TRANSACTION"))),
    _case("batch-with-bad-second", send(message(), message(b"m1", tag=" "))),
    _case("batch-with-empty-second", send(message(), message(b""))),
    _case(
        "batch-2-fifo-offsets",
        *(send(message(b"m%d" % n, message_group="k"), message(b"n%d" % n, message_group="k")) for n in range(2)),
        message_type="FIFO",
    ),
)

# Groups ----------------------------------------------------------------------------------------------------------

KEYS: Final = (
    *(f"order-{n}" for n in range(30)),
    *("a", "b", "ab", "A", "user:1", "user:2", "订单", "é", "😀", "0", "1", "zz", "polygenelubricants"),
    *("x" * 63, "Aa", "BB", "group with space", "-", "Ω", "G1"),
)


def _hash(queues: int) -> Case:
    """Which queue each of 50 groups goes to: told by the messages when they are received, each queue in order."""
    stored = [send(message(key.encode(), message_group=key, message_id="id"), seen=False) for key in KEYS]
    return _case(
        f"hash-50-groups-{queues}-queues",
        simple(),
        *stored,
        Drain(len(KEYS)),
        queues=queues,
        message_type="FIFO",
    )


# Transactions ----------------------------------------------------------------------------------------------------


def _half(body: bytes = b"m0", **system: Any) -> Ask:
    # RocketMQ asks nobody of a message without a time: it is too old.
    return send(message(body, message_type="TRANSACTION", born_timestamp=at(0), **system))


def _end(resolution: str = "COMMIT", of: str = "m0", topic: str = "$topic", **more: Any) -> Ask:
    fields = {"message_id": of, "transaction_id": of, "resolution": resolution, "source": "SOURCE_CLIENT"}
    return Ask("EndTransaction", topic_of(topic) | fields | more)


def _tx(name: str, *steps: Step, **more: Any) -> Case:
    return Case("transaction", name, steps, **{"message_type": "TRANSACTION"} | more)


BEAT: Final = Ask("Heartbeat", {"client_type": "PRODUCER"})  # RocketMQ asks producers that sent one
RECOVER: Final[dict[str, Any]] = {"orphaned_transaction_recovery_duration": span(1)}
TRANSACTIONS: Final = (
    _tx("commit", PRODUCER, _half(), simple("c2"), _end(), receive(client="c2", whole=True)),
    _tx("rollback", PRODUCER, _half(), simple("c2"), _end("ROLLBACK"), receive(client="c2")),
    _tx("not-ended", PRODUCER, _half(), simple("c2"), receive(client="c2")),
    _tx("twice", _half(), _end(), _end()),
    _tx("commit-then-rollback", _half(), _end(), _end("ROLLBACK")),
    _tx("unspecified-gone", _half(), _end("TRANSACTION_RESOLUTION_UNSPECIFIED"), _end()),
    _tx("bad-id", _half(), _end(of="nothing")),
    _tx("other-message-id", _half(), _end(message_id="other")),
    _tx("empty-id", _end(transaction_id="")),
    _tx("blank-id", _end(transaction_id=" ")),
    _tx("empty-message-id", _half(), _end(message_id="")),
    _tx("other-topic", _half(), _end(topic="Other")),
    _tx("illegal-topic", _end(topic="a b")),
    _tx("source-check", _half(), _end(source="SOURCE_SERVER_CHECK")),
    _tx(
        "orphan-check", PRODUCER, BEAT, _half(**RECOVER), Hear(within_s=LAST_S),
        _end(source="SOURCE_SERVER_CHECK"), simple("c2"), receive(client="c2"),
    ),
    _tx(
        "orphan-check-rollback", PRODUCER, BEAT, _half(**RECOVER), Hear(within_s=LAST_S),
        _end("ROLLBACK", source="SOURCE_SERVER_CHECK"), simple("c2"), receive(client="c2"),
    ),
)  # fmt: skip

# Delay and recall ------------------------------------------------------------------------------------------------


def _later(seconds: float, body: bytes = b"m0") -> Ask:
    return send(message(body, delivery_timestamp=at(seconds)))


def _recall(handle: Any = "$recall(m0)", topic: str = "$topic") -> Ask:
    return Ask("RecallMessage", topic_of(topic) | {"recall_handle": handle})


def _due(name: str, *steps: Step, **more: Any) -> Case:
    return Case("delay", name, steps, **{"message_type": "DELAY"} | more)


def _made(words: str, in_s: float = 3600) -> Any:
    """A handle that nobody gave."""

    def filled(player: Player) -> str:
        at_ms = player.site.runtime.now_ms() + round(in_s * 1000)
        text = words.replace("TIME", str(at_ms)).replace("$topic", player.topic)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    return filled


TIMER_S: Final = 2.3  # RocketMQ's timer comes 0 to 2 s late
DELAYS: Final = (
    _due("accuracy", simple(), Clock(), _later(4), polled(), within_s=TIMER_S),
    _due("fields", simple(), _later(3), receive(poll_s=20, whole=True)),
    _due("past-at-once", simple(), Clock(), _later(-60), polled(timed=False)),
    _due("order-of-times", simple(), _later(6, b"m1"), _later(3), receive(poll_s=20), receive(poll_s=20)),
    _due("handle-layout", _later(3600)),
    _due("recall-ok", simple(), _later(6), _recall(), receive(poll_s=9)),
    _due("recall-twice", _later(3600), _recall(), _recall()),
    _due("recall-late", simple(), _later(2), receive(poll_s=20, seen=False), _recall()),
    _due("recall-bad", _recall("garbage")),
    _due("recall-empty", _recall("")),
    _due("recall-other-topic", _later(3600), _recall(topic="Other")),
    _due("recall-illegal-topic", _recall("x", topic="a b")),
    _due("recall-made", _recall(_made("v1 $topic broker-a TIME id"))),
    _due("recall-made-version", _recall(_made("v2 $topic broker-a TIME id"))),
    _due("recall-made-other-topic", _recall(_made("v1 Other broker-a TIME id"))),
    _due("recall-made-broker", _recall(_made("v1 $topic broker-z TIME id"))),
    _due("recall-made-past", _recall(_made("v1 $topic broker-a TIME id", -60))),
    _due("recall-normal-topic", _recall(_made("v1 $topic broker-a TIME id")), message_type="NORMAL"),
)

SENDS: Final = (*PLAIN, *(_hash(queues) for queues in (1, 2, 3, 4, 7, 8, 16, 32)), *TRANSACTIONS, *DELAYS)
