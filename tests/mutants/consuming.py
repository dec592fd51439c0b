"""Protections of a queue under consumption: listener calls, offsets, rebalance."""

from typing import Final

from lockstep.simulation.museum.variant import edited, put
from tests.mutants.protection import Protection

__all__ = ["CONSUMING"]

# Modules
BASE: Final = "lockstep.client.consumer.dispatch.base"
ORDERLY: Final = "lockstep.client.consumer.dispatch.orderly"
MEMBER: Final = "lockstep.client.consumer.member"
OFFSET_MAP: Final = "lockstep.client.consumer.cache.offset_map"
STORE: Final = "lockstep.client.consumer.offsets.store"
CLIENT_REBALANCE: Final = "lockstep.client.consumer.ownership.rebalance"
MESSAGE_CACHE: Final = "lockstep.client.consumer.cache.message_cache"
PULL_LOOP: Final = "lockstep.client.consumer.pull_loop"
PUSH_MEMBER: Final = "lockstep.client.consumer.push_member"

TAKEOVER: Final = ("tests/scenarios/locks/test_takeover.py", "tests/scenarios/locks/test_partitions.py")
OWNERSHIP: Final = ("tests/client/dispatch/test_consume_ownership.py",)
REBALANCE: Final = ("tests/client/ownership/test_rebalance.py",)

CONSUMING: Final = (
    # Calls
    Protection(
        "one-generation-at-a-time",
        "The listener runs for two generations of one queue at once.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._consume", "not mutex.is_free_for(process_queue)", "False"),
        OWNERSHIP,
    ),
    Protection(
        "lock-between-calls",
        "The lock is not looked at between the calls of one run.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._consume_run",
            "not hold.is_trusted(now_ms)",
            "False",
        ),
        OWNERSHIP,
    ),
    Protection(
        "lock-between-straight-calls",
        "The lock is not looked at between the calls that nobody records or watches.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._straight_calls", "not hold.is_trusted(now_ms)", "False"),
        OWNERSHIP,
    ),
    Protection(
        "dropped-between-straight-calls",
        "A dropped queue is consumed on by the calls that nobody records or watches.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._straight_calls",
            "life.dropped or life.draining or starts.stopped or mutex.reserved or (now_ms > until_ms)",
            "starts.stopped or mutex.reserved or (now_ms > until_ms)",
        ),
        OWNERSHIP,
    ),
    Protection(
        "dropped-commits-nothing",
        "A dropped queue still moves its offset.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._store_offset", "not process_queue.life.dropped", "True"),
        OWNERSHIP,
    ),
    Protection(
        "dropped-commits-nothing-straight",
        "A dropped queue still moves its offset after a call that nobody records or watches.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._straight_calls", "not life.dropped", "True"),
        OWNERSHIP,
    ),
    Protection(
        "handled-before-offset",
        "The offset may be committed before the trace says that the message was handled.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._take_result",
            "self._trace.handled",
            "lambda *record: self._runtime.call_later_ms(0, self._trace.handled, *record)",
        ),
        OWNERSHIP,
    ),
    Protection(
        "suspended-message-comes-again",
        "A message whose listener suspended its queue is skipped.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._suspend",
            "process_queue.cache.make_messages_to_consume_again(messages)",
            "",
        ),
        ("tests/client/dispatch/test_consume_orderly.py",),
    ),
    Protection(
        "suspended-without-lock-comes-again",
        "A message is skipped when its lock was lost while its listener suspended the queue.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._suspend",
            "process_queue.cache.make_messages_to_consume_again(messages)",
            (
                "if process_queue.hold.is_trusted(self._runtime.now_ms()):\n"
                "    process_queue.cache.make_messages_to_consume_again(messages)"
            ),
        ),
        OWNERSHIP,
    ),
    # Offsets
    Protection(
        "no-commit-after-expiry",
        "The commit timer stores offsets of a queue whose lock has run out.",
        edited(MEMBER, "GroupMember._persist_all", "pq.hold.is_trusted(now_ms)", "True"),
        TAKEOVER,
    ),
    Protection(
        "no-commit-of-lost-queue",
        "A rebalance stores the offset of a queue whose lock has run out.",
        edited(CLIENT_REBALANCE, "Rebalance._persist", "self._member.holds_lock(process_queue)", "True"),
        (*REBALANCE, *TAKEOVER),
    ),
    Protection(
        "offsets-before-unlock",
        "A shutdown frees the queues before it stores their offsets.",
        edited(
            MEMBER,
            "GroupMember.stop",
            "await self._persist_last()",
            ("await self._locks.unlock_all(held)\nawait self._persist_last()"),
        ),
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "error-is-no-offset",
        'Any error is taken for "no offset", and the queue begins somewhere else.',
        edited(
            STORE,
            "RemoteBrokerOffsetStore._read_stored",
            "reply.code == ResponseCode.QUERY_NOT_FOUND",
            "reply.code != ResponseCode.SUCCESS",
        ),
        ("tests/client/offsets/test_offsets.py",),
    ),
    Protection(
        "offset-query-timeout",
        "A query of the stored offset waits for the 3 s of other requests, not for 5 s.",
        edited(
            STORE,
            "RemoteBrokerOffsetStore._read_stored",
            "self._instance.call_address(address, code, header, timeout_ms=5000)",
            "self._instance.call_address(address, code, header)",
        ),
        ("tests/client/offsets/test_offsets.py",),
    ),
    Protection(
        "position-under-lock",
        "A queue is pulled without its lock.",
        edited(PULL_LOOP, "PullLoop._pull_once", "not self._member.holds_lock(process_queue)", "False"),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "offset-of-earlier-period",
        "A new period commits the offset that an earlier one left in memory.",
        edited(CLIENT_REBALANCE, "Rebalance._add", "self._offsets.forget(queue)", ""),
        REBALANCE,
    ),
    Protection(
        "pulled-for-dropped-queue",
        "What is pulled for a dropped queue is handed to the listener.",
        edited(PULL_LOOP, "PullLoop._take", "return", ""),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "accumulation-guard",
        "A pull that reached the end sets the accumulated count to 0, which RocketMQ keeps.",
        edited(PULL_LOOP, "PullLoop._take", "behind > 0", "behind >= 0"),
        ("tests/client/pulls/test_pull_flow.py",),
    ),
    # Rebalance
    Protection(
        "missing-member-keeps",
        "A client that is missing from the member list drops its queues.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._share",
            ("self._lists.forget()\nreturn None"),
            ("self._lists.forget()\nreturn []"),
        ),
        REBALANCE,
    ),
    Protection(
        "group-of-strategy",
        "A strategy is not given the consumer group.",
        edited(CLIENT_REBALANCE, "Rebalance._share", "self._member.group", "''"),
        ("tests/client/ownership/test_rebalance_strategies.py",),
    ),
    Protection(
        "listener-before-unlock",
        "A rebalance frees a queue under a running listener.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._remove",
            "not await process_queue.life.listener_idle(_LISTENER_WAIT_MS)",
            "False",
        ),
        (*REBALANCE, "tests/scenarios/locks/test_rebalance.py"),
    ),
    Protection(
        "consume-lock-1000-ms",
        "A rebalance waits for a running listener longer than RocketMQ's 1,000 ms.",
        put(CLIENT_REBALANCE, "_LISTENER_WAIT_MS", "1002"),
        REBALANCE,
    ),
    Protection(
        "rebalance-lock-refused",
        "A queue whose lock was refused is consumed all the same.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._acquire",
            "granted = await self._locks.lock(wanted) if wanted else {}",
            (
                "granted = await self._locks.lock(wanted) if wanted else {}\n"
                "granted = {queue: Grant(self._runtime.now_ms()) for queue in wanted} if wanted else {}"
            ),
        ),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "rebalance-one-period",
        "A rebalance begins another period of a queue that it has already.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._update",
            "[queue for queue in dict.fromkeys(mine) if queue not in self._table]",
            "list(dict.fromkeys(mine))",
        ),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "rebalance-fresh-members",
        "A rebalance shares the queues among the members of an earlier round.",
        edited(CLIENT_REBALANCE, "Rebalance.run", "self._lists.forget()", ""),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "rebalance-stores-last",
        "A queue is given away without its last offset: it is forgotten before it is stored.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._remove",
            ("self._persist(process_queue)\nself._offsets.forget(queue)"),
            ("self._offsets.forget(queue)\nself._persist(process_queue)"),
        ),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "rebalance-drops-first",
        "A queue is dropped after its listener has ended, not before.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._remove",
            (
                "self.drop(process_queue, why)\n"
                "if not await process_queue.life.listener_idle(_LISTENER_WAIT_MS):\n"
                "    process_queue.life.try_unlock_times += 1\n"
                "    self.explanations.given_up(queue, Did.DRAINING, why, moves=why == _MOVED)\n"
                "    self._log.warning('unlock_waits_for_listener', queue=str(queue), why=why)\n"
                "    return False"
            ),
            (
                "idle = await process_queue.life.listener_idle(_LISTENER_WAIT_MS)\n"
                "self.drop(process_queue, why)\n"
                "if not idle:\n"
                "    process_queue.life.try_unlock_times += 1\n"
                "    self.explanations.given_up(queue, Did.DRAINING, why, moves=why == _MOVED)\n"
                "    self._log.warning('unlock_waits_for_listener', queue=str(queue), why=why)\n"
                "    return False"
            ),
        ),
        ("tests/scenarios/locks/test_rebalance.py",),
    ),
    Protection(
        "pull-commits-handled",
        "A pull commits the offset up to which messages were pulled, not handled.",
        edited(PULL_LOOP, "PullLoop._pull", "offsets.in_memory(queue)", "process_queue.cache.next_offset"),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "pull-finds-nothing",
        "A pull that finds nothing commits the end of the queue over messages that wait.",
        edited(PUSH_MEMBER, "PushMember.nothing_found", "process_queue.cache.is_empty", "True"),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "pull-illegal-offset",
        "A queue whose offset does not exist goes on with the messages that it has.",
        edited(PUSH_MEMBER, "PushMember.offset_illegal", "process_queue.life.dropped = True", ""),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "pull-goes-on",
        "A pull goes on from the last message and not behind it.",
        edited(
            PULL_LOOP,
            "PullLoop._take",
            "process_queue.cache.next_offset = result.next_begin_offset",
            "process_queue.cache.next_offset = max(result.next_begin_offset - 1, 0)",
        ),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "commit-behind-handled",
        "The offset of the last handled message is committed, not the one behind it.",
        edited(MESSAGE_CACHE, "MessageCache.commit", "max(in_hand) + 1", "max(in_hand)"),
        ("tests/client/pulls/test_process_queue.py",),
    ),
    Protection(
        "put-back-in-order",
        "A message that is put back comes behind those that wait.",
        edited(OFFSET_MAP, "OffsetMap.put", "bool(new and offsets and (new[0] <= offsets[-1]))", "False"),
        ("tests/client/offsets/test_offset_map.py",),
    ),
    Protection(
        "consuming-begins-again",
        "A queue that was empty once is not consumed again.",
        edited(MESSAGE_CACHE, "MessageCache.take_messages", "not taken", "False"),
        ("tests/client/pulls/test_process_queue.py",),
    ),
    Protection(
        "stop-waits-for-calls",
        "A shutdown frees a queue while its listener runs.",
        edited(
            BASE,
            "OrderedService.stop",
            "[process_queue for process_queue in self._running if process_queue.life.listener_running]",
            "[]",
        ),
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "stop-stores",
        "A shutdown stores no offsets.",
        edited(MEMBER, "GroupMember.stop", "await self._persist_last()", ""),
        ("tests/scenarios/test_shutdown.py",),
    ),
    Protection(
        "dead-letter-sent",
        "A message at its limit of attempts is given up without a dead letter.",
        edited(BASE, "OrderedService._give_up", "await self._dead_letters.send(process_queue, message, limit)", ""),
        ("tests/client/dispatch/test_consume_orderly.py",),
    ),
    Protection(
        "dead-letter-refused",
        "A message whose dead letter was not stored is given up.",
        edited(
            BASE,
            "OrderedService._give_up",
            "self._log.warning('dead_letter_not_sent', queue=str(process_queue.queue), error=str(error))",
            (
                "dead.append(message)\n"
                "self._log.warning('dead_letter_not_sent', queue=str(process_queue.queue), error=str(error))"
            ),
        ),
        ("tests/client/dispatch/test_consume_orderly.py",),
    ),
    Protection(
        "dead-letters-of-all",
        "A batch of which one message became a dead letter is given up with all others.",
        edited(
            ORDERLY,
            "ConsumeMessageOrderlyService._suspend",
            "len(await self._give_up(process_queue, messages)) == len(messages)",
            "await self._give_up(process_queue, messages)",
        ),
        ("tests/client/dispatch/test_consume_orderly.py",),
    ),
    Protection(
        "rebalance-stays-locked",
        "A queue that is asked for again in the same round is unlocked meanwhile.",
        edited(
            CLIENT_REBALANCE,
            "Rebalance._remove",
            "(process_queue.cache.is_empty or why == _NOT_SUBSCRIBED) and not stays",
            "process_queue.cache.is_empty or why == _NOT_SUBSCRIBED",
        ),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "rebalance-gives-away",
        "A member keeps queues that are another's share.",
        edited(CLIENT_REBALANCE, "Rebalance._update", "_MOVED if queue not in mine else ''", "''"),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "dead-letter-lock",
        "A message is given up after the lock was lost.",
        edited(BASE, "OrderedService._give_up", "process_queue.life.lost", "False"),
        ("tests/client/dispatch/test_fenced_calls.py",),
    ),
    Protection(
        "pull-ends-with-period",
        "A dropped queue is pulled on.",
        edited(PULL_LOOP, "PullLoop.run", "not (life.dropped or life.draining)", "True"),
        ("tests/client/pulls/test_pull.py",),
    ),
    Protection(
        "lost-lock-comes-back",
        "A queue whose lock had run out is not taken again by its owner.",
        edited(CLIENT_REBALANCE, "Rebalance._update", "not why and process_queue.life.outlived_lock", "False"),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "members-in-one-order",
        "A member shares the queues in the order in which its broker lists the members.",
        edited(CLIENT_REBALANCE, "Rebalance._share", "sorted(client_ids)", "list(client_ids)"),
        ("tests/client/ownership/test_rebalance.py",),
    ),
    Protection(
        "one-run-a-queue",
        "A queue that is resumed while it runs has two runs, and two calls at once.",
        edited(ORDERLY, "ConsumeMessageOrderlyService._start", "process_queue in self._running", "False"),
        ("tests/client/dispatch/test_consume_ownership.py",),
    ),
)
