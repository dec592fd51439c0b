"""Protections of a queue under consumption: listener calls, offsets, rebalance."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["CONSUMING"]

TAKEOVER: Final = ("tests/scenarios/test_takeover.py", "tests/scenarios/test_partitions.py")
OWNERSHIP: Final = ("tests/client/test_consume_ownership.py",)
REBALANCE: Final = ("tests/client/test_rebalance.py",)

CONSUMING: Final = (
    # Calls
    Protection(
        "one-generation-at-a-time",
        "The listener runs for two generations of one queue at once.",
        "client/consumer/dispatch/orderly.py",
        "            if not mutex.is_free_for(process_queue):",
        "            if False:",
        OWNERSHIP,
    ),
    Protection(
        "lock-between-calls",
        "The lock is not looked at between the calls of one run.",
        "client/consumer/dispatch/orderly.py",
        "            if not process_queue.holds_lock(now_ms, lock_ms):\n",
        "            if False:\n",
        OWNERSHIP,
    ),
    Protection(
        "dropped-commits-nothing",
        "A dropped queue still moves its offset.",
        "client/consumer/dispatch/orderly.py",
        "if offset >= 0 and not process_queue.dropped:",
        "if offset >= 0:",
        OWNERSHIP,
    ),
    Protection(
        "handled-before-offset",
        "The offset may be committed before the trace says that the message was handled.",
        "client/consumer/dispatch/orderly.py",
        "            self._trace.handled(queue, process_queue.period, messages, status.name, start.begin, fence)\n"
        "        if context.auto_commit and status is _Status.SUCCESS:",
        "            self._runtime.call_later_ms(\n"
        "                0, self._trace.handled, queue, process_queue.period, messages, status.name, start.begin,\n"
        "                fence,\n"
        "            )\n"
        "        if context.auto_commit and status is _Status.SUCCESS:",
        OWNERSHIP,
    ),
    Protection(
        "suspended-message-comes-again",
        "A message whose listener suspended its queue is skipped.",
        "client/consumer/dispatch/orderly.py",
        "        process_queue.make_messages_to_consume_again(messages)\n        self._start_later",
        "        self._start_later",
        ("tests/client/test_consume_orderly.py",),
    ),
    Protection(
        "suspended-without-lock-comes-again",
        "A message is skipped when its lock was lost while its listener suspended the queue.",
        "client/consumer/dispatch/orderly.py",
        "        process_queue.make_messages_to_consume_again(messages)\n        self._start_later",
        "        if process_queue.holds_lock(self._runtime.now_ms(), self._config.lock_max_live_time_ms):\n"
        "            process_queue.make_messages_to_consume_again(messages)\n"
        "        self._start_later",
        OWNERSHIP,
    ),
    # Offsets
    Protection(
        "no-commit-after-expiry",
        "The commit timer stores offsets of a queue whose lock has run out.",
        "client/consumer/member.py",
        "if not pq.dropped and self.membership.holds_lock(pq)]",
        "if not pq.dropped]",
        TAKEOVER,
    ),
    Protection(
        "no-commit-of-lost-queue",
        "A rebalance stores the offset of a queue whose lock has run out.",
        "client/consumer/ownership/rebalance.py",
        "        if self._member.holds_lock(process_queue):\n",
        "        if True:\n",
        (*REBALANCE, *TAKEOVER),
    ),
    Protection(
        "offsets-before-unlock",
        "A shutdown frees the queues before it stores their offsets.",
        "client/consumer/member.py",
        "            await self._persist_last()\n            for process_queue in list(self.table.values()):\n",
        "            await self._locks.unlock_all(held)\n"
        "            await self._persist_last()\n            for process_queue in list(self.table.values()):\n",
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "error-is-no-offset",
        'Any error is taken for "no offset", and the queue begins somewhere else.',
        "client/consumer/offsets/store.py",
        "if reply.code == ResponseCode.QUERY_NOT_FOUND:",
        "if reply.code != ResponseCode.SUCCESS:",
        ("tests/client/test_offsets.py",),
    ),
    Protection(
        "offset-query-timeout",
        "A query of the stored offset waits for the 3 s of other requests, not for 5 s.",
        "client/consumer/offsets/store.py",
        "header, timeout_ms=5000)",
        "header)",
        ("tests/client/test_offsets.py",),
    ),
    Protection(
        "position-under-lock",
        "A queue is pulled without its lock.",
        "client/consumer/pull_loop.py",
        "            if not self._member.holds_lock(process_queue):\n",
        "            if False:\n",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "offset-of-earlier-period",
        "A new period commits the offset that an earlier one left in memory.",
        "client/consumer/ownership/rebalance.py",
        "        self._offsets.forget(queue)\n        self._periods += 1\n",
        "        self._periods += 1\n",
        REBALANCE,
    ),
    Protection(
        "pulled-for-dropped-queue",
        "What is pulled for a dropped queue is handed to the listener.",
        "client/consumer/pull_loop.py",
        "            return  # these messages belong to the next owner\n",
        "            pass\n",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "accumulation-guard",
        "A pull that reached the end sets the accumulated count to 0, which RocketMQ keeps.",
        "client/consumer/pull_loop.py",
        "            if behind > 0:\n",
        "            if behind >= 0:\n",
        ("tests/client/test_pull_flow.py",),
    ),
    # Rebalance
    Protection(
        "missing-member-keeps",
        "A client that is missing from the member list drops its queues.",
        "client/consumer/ownership/rebalance.py",
        "            self._members_at.clear()\n            return None\n",
        "            self._members_at.clear()\n            return []\n",
        REBALANCE,
    ),
    Protection(
        "group-of-strategy",
        "A strategy is not given the consumer group.",
        "client/consumer/ownership/rebalance.py",
        "mine = list(strategy(self._member.group, ",
        'mine = list(strategy("", ',
        ("tests/client/test_rebalance_strategies.py",),
    ),
    Protection(
        "listener-before-unlock",
        "A rebalance frees a queue under a running listener.",
        "client/consumer/ownership/rebalance.py",
        "        if not await process_queue.listener_idle(_LISTENER_WAIT_MS):\n",
        "        if False:\n",
        (*REBALANCE, "tests/scenarios/test_rebalance.py"),
    ),
    Protection(
        "consume-lock-1000-ms",
        "A rebalance waits for a running listener longer than RocketMQ's 1,000 ms.",
        "client/consumer/ownership/rebalance.py",
        "_LISTENER_WAIT_MS = 1000",
        "_LISTENER_WAIT_MS = 1001",
        REBALANCE,
    ),
)
