"""The texts of log events: one table for stories of articles, for `run`, for `play`, and for explanations."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["EVENT_TEXTS", "EventText", "Focus"]


class Focus(StrEnum):
    """What a line is about. Each section shows some; LIFE is in all of them."""

    LIFE = "starts, ends and faults"
    MEMBERS = "heartbeats and members"
    QUEUES = "the queues of each member"
    LOCKS = "the lock table"
    CACHE = "ProcessQueue"
    OFFSETS = "offsets"
    PULLS = "pulls"
    CALLS = "listener calls"
    SENDS = "sends"
    RETRIES = "retries and dead letters"
    RETRY_QUEUE = "the queue of the group's retry topic"


class EventText(NamedTuple):
    """What an event says; an empty text: it is not shown there.

    Args:
        story: after the name of its host, in a story; with the fields of the event.
        run: {who} and {other} are hosts, {queues} queue ids; of a broker. `play` tells it too.
        play: what `play` tells beyond that, with all fields of the event; {share}: the queues of a rebalance.
        seldom: told again only after a minute, because it is asked or tried again and again.
        past: in an explanation of a violation; {who} is a host, {epoch} and {why} may be empty.
        focus: what the event is about.
    """

    story: str = ""
    run: str = ""
    past: str = ""
    play: str = ""
    seldom: bool = False
    focus: Focus = Focus.LIFE


_BY_FOCUS: Final[Mapping[Focus, Mapping[str, EventText]]] = {
    Focus.LOCKS: {
        "lock_granted": EventText(
            "grants {client_id} the lock of {queue}, which was free",
            run="{who} locks {queues}.",
            past="{broker} knew no owner, and gave the lock to {who}{epoch}",
        ),
        "lock_renewed": EventText("renews the lock of {queue} for {client_id}, {age_ms} ms after the last time"),
        "lock_refused": EventText(
            "refuses {client_id} the lock of {queue}: {owner} has it, and renewed it {age_ms} ms ago",
            run="{who} asks for {queues}, and is refused: {other} holds the lock.",
            seldom=True,
        ),
        "lock_taken_over": EventText(
            "gives {client_id} the lock of {queue}: {from_client_id} renewed it {age_ms} ms ago",
            run="The lock of {other} has run out: {who} takes over {queues}, {age} after the last renewal.",
            past="{broker} gave the lock to {who}{epoch}",
        ),
        "lock_reacquired_by_owner": EventText(
            "gives {client_id} the lock of {queue} again, {age_ms} ms after its renewal",
            run="{who} locks {queues} again; its lock had run out.",
            past="{broker} gave the lock to {who} again{epoch}",
        ),
        "lock_released": EventText(
            "frees the lock of {queue}, which {client_id} gives back",
            run="{who} gives back {queues}.",
            past="{who} released the lock",
        ),
        "lock_ended": EventText(
            run="{who} does not own {queues} any more: {why}.", past="{broker} ended {who}'s lock: {why}"
        ),
        "unlock_ignored": EventText(
            "ignores the unlock of {queue} by {client_id}, which does not own it",
            play="{who} unlocks {queues}, which it does not own: nothing changes.",
        ),
        "locks_delayed": EventText(
            play="The connection of {who} has ended: its locks end after the lock delay, unless it comes back."
        ),
        "lock_lost": EventText(
            "has lost the lock of {queue}",
            past="{who} noticed that its lock was lost{why}",
            play="{who} has lost the lock of {queues}.",
        ),
        "lock_answered_late": EventText(
            "gets the answer to a lock request after {took_ms} ms, too late to use",
            play="{who} gets the answer to its lock request {took_ms} ms later, which is too late to use.",
        ),
        "lock_request_failed": EventText(
            "gets no answer to its lock request: {error}",
            play="{who} gets no answer to its lock request: {error}.",
            seldom=True,
        ),
        "lock_not_asked": EventText(
            "does not ask for the lock of {queue}: {why}",
            play="{who} does not ask for the lock of {queues}: {why}.",
            seldom=True,
        ),
        "unlock_failed": EventText(
            "gets no answer to its unlock: {error}",
            play="{who} gets no answer when it gives locks back: {error}.",
            seldom=True,
        ),
        "unlock_waits_for_listener": EventText(
            "cannot give up {queue} yet, because its listener runs ({why})",
            play="{who} cannot give up {queues} yet: its listener runs.",
            seldom=True,
        ),
    },
    Focus.QUEUES: {
        "queue_acquired": EventText("adds {queue} to its table, period {period}"),
        "queue_dropped": EventText("drops {queue} ({why})", past="{who} dropped the queue{why}"),
        "rebalanced": EventText(
            "has {queues} of {of} queues of {topic} after this rebalance",
            play="{who} shares out the queues anew: its share is {share}.",
        ),
    },
    Focus.MEMBERS: {
        "consumer_group_changed": EventText(
            "learns of the member {client_id} and notifies the group",
            play="{who} joins the group; the broker tells the other members.",
        ),
        "consumer_left": EventText(
            "removes {client_id} from the group",
            run="The broker notices that {who} is gone; the others share its queues.",
        ),
        "heartbeat_expired": EventText(
            "has had no heartbeat of {peer} for {timeout_ms} ms: it is dropped",
            play="The broker drops {who}: it has had no heartbeat for {timeout_ms} ms.",
        ),
        "heartbeat_failed": EventText(
            "gets no answer to its heartbeat: {error}",
            play="{who} gets no answer to its heartbeat: {error}.",
            seldom=True,
        ),
        "rebalance_failed": EventText(
            "cannot rebalance: {error}", play="{who} cannot share out the queues: {error}.", seldom=True
        ),
    },
    Focus.PULLS: {
        "pull_throttled": EventText("does not pull {queue}: {messages} messages are cached (limit: {over})"),
        "pull_failed": EventText(
            "has failed to pull {queue}: {error}", play="{who} cannot pull {queues}: {error}.", seldom=True
        ),
        "offset_illegal": EventText(
            "learns that its offset of {queue} is illegal: {min_offset} to {max_offset}",
            past="{who} was told that its offset is outside the queue, and went on at {next_offset}",
            play="{who} learns that its offset of {queues} does not exist: the queue has {min_offset} to {max_offset}.",
        ),
        "offset_out_of_bounds": EventText("has no offset {asked_offset} in q{queue_id}, and proposes {next_offset}"),
    },
    Focus.CALLS: {
        "listener_failed": EventText(
            "has had an exception of its listener for {queue}",
            play="The listener of {who} fails for {queues}: {error}. The same messages come again.",
            seldom=True,
        ),
        "listener_failed_again": EventText("has had an exception of its listener for {queue}"),
        "listener_answer_invalid": EventText(
            "has had no legal answer of its listener for {queue}: {consequence}",
            play="The listener of {who} gives no legal answer for {queues}: {consequence}.",
            seldom=True,
        ),
        "listener_answer_invalid_again": EventText(
            "has had no legal answer of its listener for {queue}: {consequence}"
        ),
        "listener_result_ignored": EventText(
            "ignores the listener's answer for {queue}: {why}",
            play="{who} ignores the answer of its listener for {queues}: {why}.",
            seldom=True,
        ),
        "manual_commit_not_enabled": EventText("is warned about {queue}: {why}"),
        "call_not_begun": EventText("does not begin a call for offset {offset} of {queue}: {why}"),
    },
    Focus.RETRIES: {
        "dead_lettered": EventText(
            "sends offset {offset} of {queue} to the dead letters, after {reconsume_times} retries",
            play="{who} makes offset {offset} of {queues} a dead letter, after {reconsume_times} retries.",
        ),
        "dead_letter": EventText("stores a dead letter, after {reconsume_times} retries"),
        "dead_letter_not_sent": EventText("cannot send a dead letter of {queue}: {error}"),
        "send_back_failed": EventText(
            "cannot send the message at {offset} of {queue} back: {error}",
            play="{who} cannot send a failed message of {queues} back: {error}.",
            seldom=True,
        ),
        "send_back_fallback": EventText("sends the message at {offset} of {queue} to the retry topic itself"),
        "message_dropped": EventText(
            "drops the message at {offset} of {queue}: {why}",
            play="{who} drops the message at {offset} of {queues}: {why}.",
            seldom=True,
        ),
        "message_stuck": EventText(
            "sends the message at {offset} of {queue} back after {timeout_ms} ms",
            play="{who} sends the message at {offset} of {queues} back: its call takes longer than {timeout_ms} ms.",
        ),
    },
    Focus.LIFE: {
        "log_went_back": EventText(
            play="{who} had read {queues} to {read_to}, and the log begins at {begins_at} now: it begins anew."
        ),
        "listener_stuck": EventText(
            "waits no longer for its listener of {queue}: {consequence}",
            play="{who} waits no longer for its listener of {queues}: {consequence}.",
        ),
    },
}

EVENT_TEXTS: Final[Mapping[str, EventText]] = {
    name: text._replace(focus=focus) for focus, texts in _BY_FOCUS.items() for name, text in texts.items()
}
"""What is not here is not shown."""
