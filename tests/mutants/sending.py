"""Protections of order by key, and of sends in call order."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["SENDING"]

SENDS: Final = (
    "tests/client/test_send_sequence.py",
    "tests/broker/test_send_sequences.py",
    "tests/scenarios/test_sends.py",
)
TOGETHER: Final = (
    "tests/client/test_send_together.py",
    "tests/broker/test_send_together.py",
    "tests/client/test_send_order.py",
)
KEYS: Final = ("tests/client/test_key_queues.py", "tests/client/test_consume_by_key.py")

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
        ("tests/client/test_queue_mutex.py", *KEYS, "tests/scenarios/test_key_order.py"),
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
        "entry is None or entry.next_sequence != sequence or entry.generation != lane.generation",
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
)
