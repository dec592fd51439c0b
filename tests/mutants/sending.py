"""Protections of order by key, and of sends in call order."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["SENDING"]

# Modules
CORE_FIND_SENT: Final = "lockstep.broker.core.find_sent"
APPEND: Final = "lockstep.broker.core.append"
SEND_TOGETHER: Final = "lockstep.broker.core.append_together"
SEND_SEQUENCES: Final = "lockstep.broker.messages.send_sequences"
BY_KEY: Final = "lockstep.client.consumer.dispatch.by_key"
KEY_QUEUES: Final = "lockstep.client.consumer.cache.key_queues"
QUEUE_MUTEX: Final = "lockstep.client.consumer.dispatch.queue_mutex"
ORDERED: Final = "lockstep.client.producer.ordered"
PRODUCER: Final = "lockstep.client.producer.producer"
SEQUENCER: Final = "lockstep.client.producer.sequencer"
CLIENT_TOGETHER: Final = "lockstep.client.producer.together"

SENDS: Final = (
    "tests/client/producer/test_send_sequence.py",
    "tests/broker/messages/test_send_sequences.py",
    "tests/scenarios/producers/test_sends.py",
)
TOGETHER: Final = (
    "tests/client/producer/test_send_together.py",
    "tests/broker/fronts/test_send_together.py",
    "tests/client/producer/test_send_order.py",
)
KEYED_SENDS: Final = ("tests/client/producer/test_keyed_sends.py",)
FIND_SENT: Final = ("tests/broker/fronts/test_find_sent.py",)
KEYS: Final = ("tests/client/dispatch/test_key_queues.py", "tests/client/dispatch/test_consume_by_key.py")

SENDING: Final = (
    # Order by key
    Protection(
        "one-call-a-key",
        "Two calls work on one key at once.",
        edited(KEY_QUEUES, "KeyQueues._sort_in", "not key_queue.is_started", "True"),
        KEYS,
    ),
    Protection(
        "commit-below-unhandled",
        "By key, the offset passes messages that are not handled.",
        edited(KEY_QUEUES, "KeyQueues.commit_offset", ("if self._unhandled:\n    return self._unhandled[0]"), ""),
        KEYS,
    ),
    Protection(
        "mutex-between-generations-by-key",
        "By key, a new generation begins while calls of the old one run.",
        edited(QUEUE_MUTEX, "QueueMutex.is_free_for", "self.user is user or self.user is None", "True"),
        ("tests/client/dispatch/test_queue_mutex.py", *KEYS, "tests/scenarios/consumers/test_key_order.py"),
    ),
    Protection(
        "key-dead-letters-of-all",
        "By key, a batch of which one message became a dead letter is given up with all others.",
        edited(BY_KEY, "ConsumeByKeyService._not_success", "len(dead) == len(key_queue.taken)", "dead"),
        KEYS,
    ),
    Protection(
        "key-suspended-comes-again",
        "By key, a message whose listener suspended its key is skipped.",
        edited(BY_KEY, "ConsumeByKeyService._park", "state.key_queues.failed", "state.key_queues.handled"),
        KEYS,
    ),
    # Sending
    Protection(
        "sends-not-overtaken",
        "The broker stores a send whose predecessor it did not store.",
        edited(SEND_SEQUENCES, "SendSequences.refusal", "sequence == expected", "sequence >= expected"),
        SENDS,
    ),
    Protection(
        "old-generation-refused",
        "The broker stores what arrives late of a generation that was given up.",
        edited(SEND_SEQUENCES, "SendSequences.refusal", "generation < entry.generation", "False"),
        SENDS,
    ),
    Protection(
        "companions-settled-first",
        "A new generation of sends leaves while sends of the old one are unsettled.",
        edited(SEQUENCER, "SendSequence.renew", "self._stale = self._in_flight", "self._stale = 0"),
        SENDS,
    ),
    Protection(
        "sends-together-in-order",
        "The broker stores a message of a frame whose predecessor it did not store.",
        edited(
            SEND_TOGETHER,
            "_Frame._accept_all",
            "entry is None or entry.next_sequence != sequence or entry.generation != queue.generation",
            "entry is None",
        ),
        TOGETHER,
    ),
    Protection(
        "special-behind-what-waits",
        "A delayed message overtakes earlier messages of its queue that wait to leave together.",
        edited(
            CLIENT_TOGETHER,
            "_Link.send",
            ("self.flush()\nself._alone(send, timeout_ms)"),
            "self._alone(send, timeout_ms)",
        ),
        TOGETHER,
    ),
    Protection(
        "key-put-back-in-order",
        "By key, a message whose call failed comes behind later ones of its key.",
        edited(
            KEY_QUEUES,
            "KeyQueues.give_back",
            "key_queue.waiting.extendleft(reversed(key_queue.taken))",
            "key_queue.waiting.extend(key_queue.taken)",
        ),
        ("tests/client/dispatch/test_key_queues.py",),
    ),
    Protection(
        "key-calls-all-ended",
        "By key, the queue counts as idle while calls of other keys run.",
        edited(
            BY_KEY,
            "ConsumeByKeyService._call_ended",
            "cache.content_changed()\noffset = cache.position",
            "cache.content_changed()\nprocess_queue.life.listener_returned()\noffset = cache.position",
        ),
        ("tests/client/dispatch/test_consume_by_key.py",),
    ),
    Protection(
        "key-keeps-its-queue",
        "The queue of a key changes with the brokers that are connected.",
        edited(
            PRODUCER,
            "Producer.send",
            "queue = queue_of_hash(queues, key)",
            (
                "reachable = [one for one in queues if parts.instance.open_sender(one.broker_name)]\n"
                "queue = queue_of_hash(reachable or queues, key)"
            ),
        ),
        ("tests/client/producer/test_keyed_sends.py",),
    ),
    Protection(
        "key-stays-on-failure",
        "A key goes to another queue while a send of it waits to be repeated.",
        edited(
            PRODUCER,
            "Producer.send",
            "queue = queue_of_hash(queues, key)",
            (
                "queue = queue_of_hash(queues, key)\n"
                "if self._parts.ordered._sequences.get(queue) and self._parts.ordered._sequences[queue]._held:\n"
                "    queue = queues[(queues.index(queue) + 1) % len(queues)]"
            ),
        ),
        ("tests/client/producer/test_keyed_sends.py",),
    ),
    Protection(
        "sends-given-up-together",
        "A send that waits behind one that failed leaves.",
        edited(
            SEQUENCER,
            "SendSequence.give_up",
            "sorted((waiting for waiting in self._waiting if waiting > ticket))",
            "()",
        ),
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "sends-told-first",
        "Later sends leave before the callers of those that failed know of it.",
        edited(SEQUENCER, "SendSequence.give_up", "self._failing += 1", "self._failing += 0"),
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "sends-behind-a-refused-one",
        "A frame is stored on behind a message that the store refused.",
        edited(
            SEND_TOGETHER,
            "_Frame._store_one_by_one",
            ("failed.add(queue.key)\nself.broker.messages.send_sequences.failed(queue.key, queue.generation)"),
            "",
        ),
        ("tests/broker/fronts/test_send_together.py",),
    ),
    Protection(
        "sends-behind-a-lost-one",
        "Sends behind one whose sync failed are stored.",
        edited(SEND_SEQUENCES, "SendSequences.failed", "entry.next_sequence = -1", ""),
        ("tests/broker/fronts/test_unsafe_answers.py",),
    ),
    Protection(
        "sends-of-one-queue",
        "The numbers of all queues of a producer are one sequence.",
        edited(APPEND, "_take_turn", "send.queue_id", "0"),
        ("tests/scenarios/producers/test_sends.py",),
    ),
    Protection(
        "failure-known-to-cancelled",
        "A caller that is cancelled while its failure is on the way stops its queue for ever.",
        edited(
            SEQUENCER,
            "SendSequence.turn",
            "future.done() and not future.cancelled()",
            "future.done() and not future.cancelled() and future.exception() is None",
        ),
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "one-way-fails-those-behind",
        "Sends overtake a one-way send that had no connection.",
        edited(ORDERED, "OrderedSender.send_one_way", "sequence.give_up", "sequence.leave"),
        KEYED_SENDS,
    ),
    Protection(
        "cancelled-fails-those-behind",
        "Sends overtake one that is cancelled between two attempts.",
        edited(ORDERED, "OrderedSender._pause", "sequence.give_up", "sequence.leave"),
        KEYED_SENDS,
    ),
    Protection(
        "repeats-asked-for",
        "A keyed send whose answer was lost is stored once more, behind later ones.",
        edited(ORDERED, "OrderedSender._attempt", "unsure and not alone", "False"),
        ("tests/client/producer/test_find_sent.py", "tests/scenarios/producers/test_sends.py"),
    ),
    Protection(
        "question-ends-generation",
        "An attempt that arrives after the producer asked for it is stored beside its repeat.",
        edited(
            CORE_FIND_SENT,
            "find_sent",
            "broker.messages.send_sequences.refusal(key, asked.send_generation, asked.send_sequence, peer, now_ms)",
            "None",
        ),
        FIND_SENT,
    ),
    Protection(
        "question-waits-for-disk",
        "A message that waits for the disk is not found, and is stored again.",
        edited(CORE_FIND_SENT, "_found", "kept is not None and (when_synced := kept.when_synced) is not None", "False"),
        FIND_SENT,
    ),
    Protection(
        "question-of-the-whole-queue",
        "A message is not searched where it stands, before a later one that was answered first.",
        edited(
            SEQUENCER,
            "SendSequence.search_from",
            "self._stored_offset + 1 if self._stored_ticket < ticket else 0",
            "self._stored_offset + 1",
        ),
        ("tests/client/producer/test_send_sequence.py", "tests/client/producer/test_find_sent.py"),
    ),
    Protection(
        "beyond-the-span-started",
        "A key whose first message was beyond the span gets no worker, and stands for ever.",
        edited(
            BY_KEY,
            "ConsumeByKeyService._call_ended",
            "self._start_all(state, key_queues.release())",
            "key_queues.release()",
        ),
        ("tests/client/dispatch/test_consume_by_key.py",),
    ),
)
