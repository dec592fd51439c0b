"""Protections of order by key, and of sends in call order."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["SENDING"]

SENDS: Final = (
    "tests/client/producer/test_send_sequence.py",
    "tests/broker/requests/test_send_sequences.py",
    "tests/scenarios/producers/test_sends.py",
)
TOGETHER: Final = (
    "tests/client/producer/test_send_together.py",
    "tests/broker/requests/test_send_together.py",
    "tests/client/producer/test_send_order.py",
)
KEYED_SENDS: Final = ("tests/client/producer/test_keyed_sends.py",)
FIND_SENT: Final = ("tests/broker/requests/test_find_sent.py",)
KEYS: Final = ("tests/client/dispatch/test_key_queues.py", "tests/client/dispatch/test_consume_by_key.py")

SENDING: Final = (
    # Order by key
    Protection(
        "one-call-a-key",
        "Two calls work on one key at once.",
        "client/consumer/dispatch/key_queues.py",
        "            if not key_queue.is_started:\n",
        "            if True:\n",
        KEYS,
    ),
    Protection(
        "commit-below-unhandled",
        "By key, the offset passes messages that are not handled.",
        "client/consumer/dispatch/key_queues.py",
        "        if self._unhandled:\n            return self._unhandled[0]\n        return self.highest",
        "        return self.highest",
        KEYS,
    ),
    Protection(
        "mutex-between-generations-by-key",
        "By key, a new generation begins while calls of the old one run.",
        "client/consumer/dispatch/queue_mutex.py",
        "return not self.reserved and (self.user is process_queue or self.user is None)",
        "return not self.reserved",
        ("tests/client/dispatch/test_queue_mutex.py", *KEYS, "tests/scenarios/consumers/test_key_order.py"),
    ),
    Protection(
        "key-dead-letters-of-all",
        "By key, a batch of which one message became a dead letter is given up with all others.",
        "client/consumer/dispatch/by_key.py",
        "        if len(dead) == len(key_queue.taken):",
        "        if dead:",
        KEYS,
    ),
    Protection(
        "key-suspended-comes-again",
        "By key, a message whose listener suspended its key is skipped.",
        "client/consumer/dispatch/by_key.py",
        "            state.key_queues.failed(key_queue)\n        if not state.is_blocked",
        "            state.key_queues.handled(key_queue)\n        if not state.is_blocked",
        KEYS,
    ),
    # Sending
    Protection(
        "sends-not-overtaken",
        "The broker stores a send whose predecessor it did not store.",
        "broker/state/send_sequences.py",
        "        if sequence == expected:\n",
        "        if sequence >= expected:\n",
        SENDS,
    ),
    Protection(
        "old-generation-refused",
        "The broker stores what arrives late of a generation that was given up.",
        "broker/state/send_sequences.py",
        "        if generation < entry.generation:\n",
        "        if False:\n",
        SENDS,
    ),
    Protection(
        "companions-settled-first",
        "A new generation of sends leaves while sends of the old one are unsettled.",
        "client/producer/sequencer.py",
        "        self._stale = self._in_flight\n",
        "        self._stale = 0\n",
        SENDS,
    ),
    Protection(
        "sends-together-in-order",
        "The broker stores a message of a frame whose predecessor it did not store.",
        "broker/processors/send_together.py",
        "entry is None or entry.next_sequence != sequence or entry.generation != queue.generation",
        "entry is None",
        TOGETHER,
    ),
    Protection(
        "special-behind-what-waits",
        "A delayed message overtakes earlier messages of its queue that wait to leave together.",
        "client/producer/together.py",
        "special or size > together.bytes_max:\n            self.flush()\n",
        "special or size > together.bytes_max:\n",
        TOGETHER,
    ),
    Protection(
        "key-put-back-in-order",
        "By key, a message whose call failed comes behind later ones of its key.",
        "client/consumer/dispatch/key_queues.py",
        "        key_queue.waiting.extendleft(reversed(key_queue.taken))",
        "        key_queue.waiting.extend(key_queue.taken)",
        ("tests/client/dispatch/test_key_queues.py",),
    ),
    Protection(
        "key-calls-all-ended",
        "By key, the queue counts as idle while calls of other keys run.",
        "client/consumer/dispatch/by_key.py",
        "        if not key_queues.running:\n            del self._running[process_queue]",
        "        process_queue.listener_returned()\n"
        "        if not key_queues.running:\n"
        "            del self._running[process_queue]",
        ("tests/client/dispatch/test_consume_by_key.py",),
    ),
    Protection(
        "key-keeps-its-queue",
        "The queue of a key changes with the brokers that are connected.",
        "client/producer/producer.py",
        "            queue = select_by_hash(queues, message, key)\n            sending",
        "            reachable = [one for one in queues if parts.instance.open_sender(one.broker_name)]\n"
        "            queue = select_by_hash(reachable or queues, message, key)\n"
        "            sending",
        ("tests/client/producer/test_keyed_sends.py",),
    ),
    Protection(
        "key-stays-on-failure",
        "A key goes to another queue while a send of it waits to be repeated.",
        "client/producer/producer.py",
        "            queue = select_by_hash(queues, message, key)\n            sending",
        "            queue = select_by_hash(queues, message, key)\n"
        "            if self._parts.ordered._sequences.get(queue) and self._parts.ordered._sequences[queue]._held:\n"
        "                queue = queues[(queues.index(queue) + 1) % len(queues)]\n"
        "            sending",
        ("tests/client/producer/test_keyed_sends.py",),
    ),
    Protection(
        "sends-given-up-together",
        "A send that waits behind one that failed leaves.",
        "client/producer/sequencer.py",
        "sorted(waiting for waiting in self._waiting if waiting > ticket)",
        "()",
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "sends-told-first",
        "Later sends leave before the callers of those that failed know of it.",
        "client/producer/sequencer.py",
        "                self._failing += 1\n                future.set_exception",
        "                self._failing += 0\n                future.set_exception",
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "sends-behind-a-refused-one",
        "A frame is stored on behind a message that the store refused.",
        "broker/processors/send_together.py",
        "                    failed.add(queue.key)\n"
        "                    self.broker.send_sequences.failed(queue.key, queue.generation)",
        "                    pass",
        ("tests/broker/requests/test_send_together.py",),
    ),
    Protection(
        "sends-behind-a-lost-one",
        "Sends behind one whose sync failed are stored.",
        "broker/state/send_sequences.py",
        "            entry.next_sequence = -1",
        "            pass",
        ("tests/broker/requests/test_unsafe_answers.py",),
    ),
    Protection(
        "sends-of-one-queue",
        "The numbers of all queues of a producer are one sequence.",
        "broker/processors/send.py",
        '            sequence_key = (header.sender_id or "", header.topic, header.queue_id)',
        '            sequence_key = (header.sender_id or "", header.topic, 0)',
        ("tests/scenarios/producers/test_sends.py",),
    ),
    Protection(
        "failure-known-to-cancelled",
        "A caller that is cancelled while its failure is on the way stops its queue for ever.",
        "client/producer/sequencer.py",
        "                if future.exception() is not None:\n                    self._failure_known()",
        "                if future.exception() is not None:\n                    pass",
        ("tests/client/producer/test_send_sequence.py",),
    ),
    Protection(
        "one-way-fails-those-behind",
        "Sends overtake a one-way send that had no connection.",
        "client/producer/ordered.py",
        "        except SendError:\n            sequence.give_up(ticket)\n            raise\n        try:",
        "        except SendError:\n            sequence.leave(ticket)\n            raise\n        try:",
        KEYED_SENDS,
    ),
    Protection(
        "cancelled-fails-those-behind",
        "Sends overtake one that is cancelled between two attempts.",
        "client/producer/ordered.py",
        "        except asyncio.CancelledError:\n            sequence.give_up(ticket)\n            raise",
        "        except asyncio.CancelledError:\n            sequence.leave(ticket)\n            raise",
        KEYED_SENDS,
    ),
    Protection(
        "repeats-asked-for",
        "A keyed send whose answer was lost is stored once more, behind later ones.",
        "client/producer/ordered.py",
        "        if unsure and not alone:\n",
        "        if False:\n",
        ("tests/client/producer/test_find_sent.py", "tests/scenarios/producers/test_sends.py"),
    ),
    Protection(
        "question-ends-generation",
        "An attempt that arrives after the producer asked for it is stored beside its repeat.",
        "broker/processors/find_sent.py",
        "    why = broker.send_sequences.refusal("
        "key, header.send_generation, header.send_sequence, connection, now_ms)\n",
        "    why = None\n",
        FIND_SENT,
    ),
    Protection(
        "question-waits-for-disk",
        "A message that waits for the disk is not found, and is stored again.",
        "broker/processors/find_sent.py",
        "    if kept is not None and kept.log_synced is not None:\n",
        "    if False:\n",
        FIND_SENT,
    ),
    Protection(
        "question-of-the-whole-queue",
        "A message is not searched where it stands, before a later one that was answered first.",
        "client/producer/sequencer.py",
        "return self._stored_offset + 1 if self._stored_ticket < ticket else 0",
        "return self._stored_offset + 1",
        ("tests/client/producer/test_send_sequence.py", "tests/client/producer/test_find_sent.py"),
    ),
    Protection(
        "beyond-the-span-started",
        "A key whose first message was beyond the span gets no worker, and stands for ever.",
        "client/consumer/dispatch/by_key.py",
        "                self._start_all(state, key_queues.release())",
        "                key_queues.release()",
        ("tests/client/dispatch/test_consume_by_key.py",),
    ),
)
