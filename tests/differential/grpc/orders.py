"""Cases of order: what a group in order gets, who holds it back, and for how long."""

from typing import Any, Final

from tests.differential.grpc.steps import (
    IN_ORDER,
    Ask,
    Case,
    Clock,
    Committed,
    Join,
    Leave,
    Resize,
    Step,
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
from tests.differential.pop.scenes import REVIVED_EARLIER_S, REVIVED_WITHIN_S

__all__ = ["ORDERS"]


# Dead clients are looked for each 10 s by RocketMQ, each 5 s by ours.
SCANS_S: Final = 10.0
PUSHED: Final[dict[str, Any]] = {"auto_renew": True, "invisible_duration": None}
TERMINATE: Final = Ask("NotifyClientTermination", group_of(), seen=False)


def _case(name: str, *steps: Step, sent: tuple[str, ...] = ("m0", "m1"), **more: Any) -> Case:
    """Two consumers of a group in order, c1 and c2, and messages that were sent before."""
    first = (simple(), simple("c2"), *sends(*sent))
    return Case("order", name, (*first, *steps), **IN_ORDER | more)


def _pushed(name: str, *steps: Step, **more: Any) -> Case:
    """Two push consumers; c1 holds the first message. Times count from its receive."""
    first = (push(), push("c2"), *sends("m0", "m1"), Clock(), receive(1, **PUSHED))
    return Case("order", name, (*first, *steps), message_type="FIFO", in_order=True, **more)


BEAT: Final = Ask("Heartbeat", group_of() | {"client_type": "PUSH_CONSUMER"}, client="c2", seen=False)
HOLD: Final = receive(1, seen=False)
SIX: Final = tuple(f"m{n}" for n in range(6))


def _silent(at_s: int = 120) -> tuple[Step, ...]:
    """The other client waits, with its heartbeats, until it gets the message."""
    steps: list[Step] = []
    for moment in range(20, at_s, 30):
        steps += [Until(moment), BEAT]
    return (*steps, Until(at_s), BEAT, polled(1, client="c2", **PUSHED))


def _spread(name: str, *steps: Step) -> Case:
    """Four messages each in two of four queues."""
    stored = [
        send(message(b"m%d" % n, message_group=group), seen=False) for n in range(4) for group in ("order-6", "order-1")
    ]
    first: list[Step] = [simple(), simple("c2"), *stored]
    return Case("order", name, (*first, *steps), queues=4, message_type="FIFO", in_order=True)


ORDERS: Final = (
    _case("block-per-queue", HOLD, receive(1, client="c2")),
    _case("first", receive()),
    _case("attempt-reentry", receive(1, attempt_id="one"), receive(1, attempt_id="one")),
    _case("attempt-other-client", receive(1, attempt_id="one"), receive(1, client="c2", attempt_id="one")),
    _case("attempt-larger-batch", receive(1, attempt_id="one"), receive(2, attempt_id="one")),
    _case("attempt-other-id", receive(1, attempt_id="one"), receive(1, attempt_id="two")),
    _case("attempt-old-handle", receive(1, attempt_id="one"), Until(0.5), receive(1, attempt_id="one"), ack("m0,0"),
          Committed(), ack("m0"), Committed()),
    _case("expiry-time", Clock(), HOLD, polled(1, client="c2")),
    _case("expiry-attempt-2", HOLD, receive(1, poll_s=20), sent=("m0",)),
    _case("expiry-attempt-3", HOLD, change("m0", 0, seen=False), receive(1, seen=False), change("m0", 0, seen=False),
          receive(1, poll_s=20), sent=("m0",)),
    _case("partial-ack-redelivers-all", Clock(), receive(4, seen=False), ack("m1"), ack("m2"), Committed(),
          polled(client="c2"), sent=SIX),
    _case("offset-first-unacked", receive(4, seen=False), ack("m3"), Committed(), ack("m1"), Committed(), ack("m0"),
          Committed(), ack("m2"), Committed(), sent=SIX[:4]),
    _case("wake-on-ack", HOLD, polled(1, client="c2", later="w"), Until(1), Clock(), ack("m0"), Join("w")),
    _case("wake-on-change", HOLD, polled(1, client="c2", later="w"), Until(1), Clock(), change("m0", 0), Join("w")),
    _case("wake-on-forward", HOLD, polled(1, client="c2", later="w"), Until(1), Clock(), forward("m0"), Join("w")),
    _case("wake-on-arrival", polled(1, later="w"), Until(1), Clock(), *sends("m0"), Join("w"), sent=()),
    _case("ack-then-next", receive(1), ack("m0"), receive(1), ack("m1"), Committed()),
    _case("held-new-message-waits", receive(2), *sends("m2"), receive(1, client="c2")),
    _case(
        "max-attempts-proxy-dlq",
        *(step for _ in range(3) for step in (receive(1), change("m0", 0, seen=False))),
        receive(1), receive(1, poll_s=20),
        receive(message_queue=topic_of("%DLQ%$group")),
        retries=2,
    ),
    _case("attempts-with-new-message-in-batch", receive(1), change("m0", 0, seen=False), *sends("m1"), receive(2),
          sent=("m0",)),
    _case("change-one-of-two", Clock(), receive(2, seen=False), change("m0", 0, seen=False), polled(2, client="c2")),
    _case("change-both", receive(2, seen=False), change("m0", 0, seen=False), change("m1", 0, seen=False), receive(2)),
    _case("late-ack-before-redelivery", Clock(), HOLD, Until(11), ack("m0"), receive(1)),
    _case("stale-ack", HOLD, change("m0", 0, seen=False), receive(1, client="c2"), ack("m0,0"), Committed(),
          receive(1)),
    _spread("two-consumers-two-queues", receive(2, by_queue=True), receive(2, client="c2", by_queue=True), receive(2)),
    _spread("several-queues-in-one-receive", receive(by_queue=True), receive(client="c2")),
    _spread("batch-fills-from-one-queue", *(receive(3, by_queue=True) for _ in range(3))),
    _case("simple-terminate-keeps", Clock(), HOLD, TERMINATE, polled(1, client="c2")),
    _case("simple-close-keeps", Clock(), HOLD, Leave(), polled(1, client="c2")),
    _pushed("push-terminate-1s", Clock(), TERMINATE, polled(1, client="c2", **PUSHED)),
    _pushed("push-terminate-wakes", polled(1, client="c2", later="w", **PUSHED), Until(1), Clock(), TERMINATE,
            Join("w")),
    _pushed("push-close-125s", Leave(), *_silent(), within_s=SCANS_S),
    _pushed("push-silent-125s", *_silent(), within_s=SCANS_S),
    _pushed("push-ack-next", ack("m0"), receive(1, **PUSHED)),
    _pushed("push-change", change("m0", 3), polled(1, client="c2", **PUSHED)),
    _pushed("renew-past-60s", Until(30), BEAT, BEAT._replace(client="c1"), Until(65),
            receive(1, client="c2", **PUSHED), ack("m0"), receive(1, client="c2", **PUSHED)),
    _case("group-not-orderly", HOLD, receive(1, client="c2"), sent=("m0", "m1", "m2"), in_order=False),
    _case("group-not-orderly-again", Clock(), HOLD, polled(1, client="c2"), sent=("m0",), in_order=False,
          earlier_s=REVIVED_EARLIER_S, within_s=REVIVED_WITHIN_S),
    Case(
        "order", "resize-4-to-8",
        (simple(), simple("c2"), send(message(b"a0", message_group="order-11"), seen=False), receive(1),
         Resize(8), send(message(b"b0", message_group="order-11"), seen=False), receive(1, client="c2")),
        queues=4, message_type="FIFO", in_order=True,
    ),
)  # fmt: skip
