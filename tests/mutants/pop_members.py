"""Protections of a push consumer in POP mode: what keeps a key in order although no queue is owned."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["POP_MEMBERS"]

# Modules
ANSWERS: Final = "lockstep.client.consumer.pop.answers"
HELD: Final = "lockstep.client.consumer.pop.held"
MEMBER: Final = "lockstep.client.consumer.pop.member"
SERVICE: Final = "lockstep.client.consumer.pop.service"

CONSUMER: Final = ("tests/client/pulls/test_pop_consumer.py",)

POP_MEMBERS: Final = (
    Protection(
        "pop-one-of-a-key",
        "Two messages of a key are handled at once.",
        edited(HELD, "HeldMessages._lane_of", "held.queue if key is None else (held.queue.topic, key)", "object()"),
        CONSUMER,
    ),
    Protection(
        "pop-held-taken-twice",
        "A message that is delivered again while its call runs is called once more.",
        edited(HELD, "HeldMessages.take", "self._table.get(held.name)", "None"),
        CONSUMER,
    ),
    Protection(
        "pop-renewed",
        "What a slow listener has is not renewed: another member gets it, too.",
        edited(ANSWERS, "Answers.renew_forever", "[self.renew(held) for held in due if not held.is_lost]", "[]"),
        CONSUMER,
    ),
    Protection(
        "pop-renewed-after-a-cut",
        "When its connection ends, a member does not say that it lives: others get what it has.",
        edited(MEMBER, "PopMember._connection_ended", "self.service.held", "False"),
        CONSUMER,
    ),
    Protection(
        "pop-ack-awaited",
        "The next message of a key begins before the broker has the acknowledgement.",
        edited(
            SERVICE,
            "PopService._answer_in_order",
            "await asyncio.gather(*[self.answers.ack(held) for held in left])",
            'for held in left: self._runtime.create_task(self.answers.ack(held), name="ack")',
        ),
        CONSUMER,
    ),
    Protection(
        "pop-behind-a-lost-one",
        "What is behind a message that another member has now is handled all the same.",
        edited(SERVICE, "PopService._lost", "self.held.clear(lane)", "[]"),
        CONSUMER,
    ),
    Protection(
        "pop-call-of-a-lost-one",
        "The call for a message that another member has now goes on.",
        edited(SERVICE, "PopService._lost", "start.cancel()", "pass"),
        CONSUMER,
    ),
    Protection(
        "pop-given-back",
        "A member that stops keeps what it did not handle.",
        edited(
            SERVICE,
            "PopService._give_back_waiting",
            "await self._pops.give_back([held.delivery for held in waiting])",
            "pass",
        ),
        CONSUMER,
    ),
    Protection(
        "pop-last-answers",
        "A member that stops does not wait for what is on its way to it.",
        edited(MEMBER, "PopMember._has_left", "await self._calls.last_answers()", "pass"),
        CONSUMER,
    ),
    Protection(
        "pop-calls-of-a-leaver",
        "A broker gives messages to a member that has left.",
        edited(
            "lockstep.broker.core.register",
            "unregister",
            "broker.messages.pops.held.on_left(peer, consumer_group, now_ms)",
            "pass",
        ),
        CONSUMER,
    ),
    Protection(
        "pop-dead-without-a-try",
        "A message that came behind another one is a dead letter before its first call.",
        edited(
            SERVICE,
            "PopService._too_often",
            "held.is_first and held.message.reconsume_times > limit",
            "held.message.reconsume_times > limit",
        ),
        CONSUMER,
    ),
)
