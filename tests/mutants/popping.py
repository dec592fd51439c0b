"""Protections of groups that read in order without owning queues: the broker's fenced way of POP."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["POPPING"]

# Modules
FENCED: Final = "lockstep.broker.messages.pop.fenced"
JOURNAL: Final = "lockstep.broker.messages.pop.journal"
CORE_POP: Final = "lockstep.broker.core.pop"
CORE_CLAIM: Final = "lockstep.broker.core.claim"
CORE_ACK: Final = "lockstep.broker.core.ack"

QUEUE: Final = ("tests/broker/messages/pop/test_fenced.py",)
BOTH_WORLDS: Final = ("tests/broker/fronts/grpc/test_both_worlds.py",)
DELIVERIES: Final = ("tests/broker/persistence/test_deliveries.py",)

POPPING: Final = (
    Protection(
        "pop-key-held",
        "A message is delivered while another client holds one of its key.",
        edited(FENCED, "FencedQueue.pop", "one.holds(now_ms) and not one.is_again(order)", "False"),
        QUEUE,
    ),
    Protection(
        "pop-beside-an-owner",
        "A queue that a client has locked is popped.",
        edited(CORE_POP, "_pop_in_order", "not owned(group, topic, queue_id, now_ms)", "True"),
        BOTH_WORLDS,
    ),
    Protection(
        "lock-beside-a-delivery",
        "A queue is locked while another client has a message of it.",
        edited(CORE_CLAIM, "_popped", "one.visible_ms > now_ms", "False"),
        BOTH_WORLDS,
    ),
    Protection(
        "grant-ends-deliveries",
        "A late acknowledgement moves the offset of an owner.",
        edited(CORE_CLAIM, "claim", "locked.begun", "()"),
        BOTH_WORLDS,
    ),
    Protection(
        "pop-newest-answers",
        "An acknowledgement of a delivery that another has followed is taken.",
        edited(FENCED, "FencedQueue._judged", "pop_ms == newest_ms != 0", "True"),
        QUEUE,
    ),
    Protection(
        "pop-followers-end",
        "A message comes again, and an older delivery acknowledges what follows it.",
        edited(FENCED, "FencedQueue._deliver_all", "one.end()", ""),
        QUEUE,
    ),
    Protection(
        "pop-acked-stays",
        "A message comes again that is acknowledged, when an earlier one comes again.",
        edited(
            FENCED,
            "FencedQueue._read_again",
            "one.is_acked or one.key in held",
            "one.key in held",
        ),
        QUEUE,
    ),
    Protection(
        "pop-delivery-kept",
        "A crash forgets who holds what.",
        edited(CORE_POP, "_pop_in_order", "messages.pops.journals", "False"),
        DELIVERIES,
    ),
    Protection(
        "pop-renewal-kept",
        "A crash forgets that a delivery was renewed.",
        edited(CORE_ACK, "change_invisible", "broker.messages.pops.journals", "False"),
        DELIVERIES,
    ),
    Protection(
        "pop-consumed-kept",
        "After a crash a message comes again behind one that was delivered after its acknowledgement.",
        edited(JOURNAL, "_replay", "Replayed(order, made.offsets, made.commit_offset, acked)",
               "Replayed(order, made.offsets, -1, ())"),
        DELIVERIES,
    ),
    Protection(
        "pop-offset-kept",
        "After a crash an old offset ends the deliveries of the log.",
        edited(JOURNAL, "_replay",
               "offsets.commit(made.consumer_group, made.topic, made.queue_id, made.commit_offset)", "pass"),
        DELIVERIES,
    ),
    Protection(
        "pop-lost-comes-first",
        "After a crash a message is acknowledged, and an earlier one of its key comes again.",
        edited(FENCED, "FencedQueue.crashed", "self._last_pop_ms", "0"),
        DELIVERIES,
    ),
)  # fmt: skip
