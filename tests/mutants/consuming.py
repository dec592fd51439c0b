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
    Protection(
        "rebalance-lock-refused",
        "A queue whose lock was refused is consumed all the same.",
        "client/consumer/ownership/rebalance.py",
        "        granted = await self._locks.lock(wanted) if wanted else {}\n",
        "        granted = await self._locks.lock(wanted) if wanted else {}\n"
        "        granted = {queue: Grant(self._runtime.now_ms()) for queue in wanted} if wanted else {}\n",
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "rebalance-one-period",
        "A rebalance begins another period of a queue that it has already.",
        "client/consumer/ownership/rebalance.py",
        "wanted = [queue for queue in dict.fromkeys(mine) if queue not in self._table]",
        "wanted = list(dict.fromkeys(mine))",
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "rebalance-fresh-members",
        "A rebalance shares the queues among the members of an earlier round.",
        "client/consumer/ownership/rebalance.py",
        "        topics = list(self._owner.topics())\n        self._members_at.clear()\n",
        "        topics = list(self._owner.topics())\n",
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "rebalance-stores-last",
        "A queue is given away without its last offset: it is forgotten before it is stored.",
        "client/consumer/ownership/rebalance.py",
        "        self._persist(process_queue)\n        self._offsets.forget(queue)\n",
        "        self._offsets.forget(queue)\n        self._persist(process_queue)\n",
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "rebalance-drops-first",
        "A queue is dropped after its listener has ended, not before.",
        "client/consumer/ownership/rebalance.py",
        "        self.drop(process_queue, why)\n        if not await process_queue.listener_idle(_LISTENER_WAIT_MS):",
        "        idle = await process_queue.listener_idle(_LISTENER_WAIT_MS)\n"
        "        self.drop(process_queue, why)\n"
        "        if not idle:",
        ("tests/scenarios/test_rebalance.py",),
    ),
    Protection(
        "pull-commits-handled",
        "A pull commits the offset up to which messages were pulled, not handled.",
        "client/consumer/pull_loop.py",
        "commit_offset = offsets.in_memory(queue)",
        "commit_offset = process_queue.next_offset",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "pull-finds-nothing",
        "A pull that finds nothing commits the end of the queue over messages that wait.",
        "client/consumer/push_member.py",
        "if result.status is not PullStatus.FOUND and process_queue.is_empty:",
        "if result.status is not PullStatus.FOUND:",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "pull-illegal-offset",
        "A queue whose offset does not exist goes on with the messages that it has.",
        "client/consumer/push_member.py",
        "        process_queue.dropped = True\n        offsets = range",
        "        offsets = range",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "pull-goes-on",
        "A pull goes on from the last message and not behind it.",
        "client/consumer/pull_loop.py",
        "        process_queue.next_offset = result.next_begin_offset\n",
        "        process_queue.next_offset = max(result.next_begin_offset - 1, 0)\n",
        ("tests/client/test_pull.py",),
    ),
    Protection(
        "commit-behind-handled",
        "The offset of the last handled message is committed, not the one behind it.",
        "client/consumer/process_queue.py",
        "offset = max(in_hand) + 1",
        "offset = max(in_hand)",
        ("tests/client/test_process_queue.py",),
    ),
    Protection(
        "put-back-in-order",
        "A message that is put back comes behind those that wait.",
        "client/consumer/offset_map.py",
        "        below = bool(new and offsets and new[0] <= offsets[-1])",
        "        below = False",
        ("tests/client/test_offset_map.py",),
    ),
    Protection(
        "consuming-begins-again",
        "A queue that was empty once is not consumed again.",
        "client/consumer/process_queue.py",
        "        if not taken:\n            self.consuming = False\n",
        "",
        ("tests/client/test_process_queue.py",),
    ),
    Protection(
        "stop-waits-for-calls",
        "A shutdown frees a queue while its listener runs.",
        "client/consumer/dispatch/base.py",
        "        return [process_queue for process_queue in self._running if process_queue.listener_running]",
        "        return []",
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "stop-stores",
        "A shutdown stores no offsets.",
        "client/consumer/member.py",
        "            await self._persist_last()\n            for",
        "            for",
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "dead-letter-sent",
        "A message at its limit of attempts is given up without a dead letter.",
        "client/consumer/dispatch/base.py",
        "                    await self._dead_letters.send(process_queue, message, limit)\n"
        "                    dead.append(message)",
        "                    dead.append(message)",
        ("tests/client/test_consume_orderly.py",),
    ),
    Protection(
        "dead-letter-refused",
        "A message whose dead letter was not stored is given up.",
        "client/consumer/dispatch/base.py",
        "                except SendError as error:\n",
        "                except SendError as error:\n                    dead.append(message)\n",
        ("tests/client/test_consume_orderly.py",),
    ),
    Protection(
        "dead-letters-of-all",
        "A batch of which one message became a dead letter is given up with all others.",
        "client/consumer/dispatch/orderly.py",
        "if len(await self._give_up(process_queue, messages)) == len(messages):",
        "if await self._give_up(process_queue, messages):",
        ("tests/client/test_consume_orderly.py",),
    ),
    Protection(
        "rebalance-stays-locked",
        "A queue that is asked for again in the same round is unlocked meanwhile.",
        "client/consumer/ownership/rebalance.py",
        "        if process_queue.is_empty and not stays:",
        "        if process_queue.is_empty:",
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "rebalance-gives-away",
        "A member keeps queues that are another's share.",
        "client/consumer/ownership/rebalance.py",
        '            why = _MOVED if queue not in mine else ""',
        '            why = ""',
        ("tests/client/test_rebalance.py",),
    ),
    Protection(
        "dead-letter-lock",
        "A message is given up after the lock was lost.",
        "client/consumer/dispatch/base.py",
        "        if process_queue.lost:\n            return []\n",
        "",
        ("tests/client/test_fenced_calls.py",),
    ),
    Protection(
        "pull-ends-with-period",
        "A dropped queue is pulled on.",
        "client/consumer/pull_loop.py",
        "        while not (process_queue.dropped or process_queue.draining):",
        "        while True:",
        ("tests/client/test_pull.py",),
    ),
)
