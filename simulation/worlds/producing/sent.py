"""What became of each send: where its messages are, and whether that fits what its caller was told."""

from dataclasses import dataclass, field
from typing import Final

from lockstep.client import MessageExt, MessageQueue, SendOutcome
from lockstep.simulation.lab.findings import Findings, Wrong, place_of

__all__ = ["KEYS", "Places", "Sent", "text_of"]

KEYS: Final = 3  # of each producer, in turn


@dataclass(eq=False)
class Sent:
    """A call of `send`, or of `send_batch`.

    Args:
        number: of its texts and its key.
        texts: of its messages.
        outcome: None: it is under way, or its caller went away; "stored" or a SendOutcome.
        called: its place in the order of all calls; -1: its caller went away before. A task may begin after others
            that were made later.
        ended: how many calls had begun when this one failed.
        ends: of the queues, when it failed.
        follows: it was called by one that had just heard of a failure.
        behind: of a stored one, where the next message of its queue would have come when its caller was answered.
    """

    number: int
    producer: str
    texts: tuple[str, ...]
    retried: bool
    called: int = -1
    outcome: str | SendOutcome | None = None
    ended: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    follows: bool = False
    queue: MessageQueue | None = None
    offset: int = -1
    behind: int = 0


class Places:
    """Where messages are stored. `add` each queue, and then `check`."""

    def __init__(self, findings: Findings, sent: list[Sent]) -> None:
        self._findings = findings
        self._sent = sent
        self._places: dict[str, list[tuple[MessageQueue, int]]] = {}

    def add(self, queue: MessageQueue, stored: list[MessageExt]) -> None:
        """All messages of a queue."""
        for message in stored:
            self._places.setdefault(text_of(message), []).append((queue, message.queue_offset))
        self._check_order(queue, stored, {text: sent for sent in self._sent for text in sent.texts})

    def check(self) -> None:
        """When all queues were added."""
        for sent in self._sent:
            for part, text in enumerate(sent.texts):
                self._check_outcome(sent, text, part)
        for name in sorted({sent.producer for sent in self._sent}):
            calls = sorted((sent for sent in self._sent if sent.called >= 0), key=lambda sent: sent.called)
            self._check_overtaken([sent for sent in calls if sent.producer == name])

    def _check_order(self, queue: MessageQueue, stored: list[MessageExt], by_text: dict[str, Sent]) -> None:
        """First copies in call order; nothing after it, or after a later one, was answered as stored."""
        seen, highest = set[str](), dict[str, int]()
        calls = [sent for sent in self._sent if sent.queue == queue and sent.behind]
        answered = sorted((sent.behind, sent.called, sent.producer) for sent in calls)
        known, position = dict[str, int](), 0
        for message in stored:
            text, offset = text_of(message), message.queue_offset
            sent = by_text[text]
            while position < len(answered) and answered[position][0] <= offset:
                _, called, producer = answered[position]
                known[producer], position = max(called, known.get(producer, -1)), position + 1
            if sent.called < highest.get(sent.producer, -1) and text not in seen:
                told = f"message {text} at offset {offset}, after one that was called later"
                self._findings.add(Wrong.STORED_OUT_OF_ORDER, told, queue=place_of(queue))
            if sent.called <= known.get(sent.producer, -1):
                told = f"message {text} at offset {offset}, after the answer to it or to one that was called later"
                self._findings.add(Wrong.STORED_LATE, told, queue=place_of(queue))
            seen.add(text)
            highest[sent.producer] = max(sent.called, highest.get(sent.producer, -1))

    def _check_outcome(self, sent: Sent, text: str, part: int) -> None:
        places = self._places.get(text, [])
        if sent.queue is not None and (sent.queue, sent.offset + part) not in places:
            told = f"message {text} was answered with offset {sent.offset + part}, and is at {places}"
            self._findings.add(Wrong.NOT_STORED, told, queue=place_of(sent.queue))
        if sent.outcome in (SendOutcome.NOT_SENT, SendOutcome.REFUSED) and places:
            self._findings.add(Wrong.REFUSED_AND_STORED, f"message {text} failed as {sent.outcome}, and is at {places}")
        if len(places) > 1:
            self._findings.add(Wrong.STORED_TOO_OFTEN, f"message {text} is at {places}")

    def _check_overtaken(self, calls: list[Sent]) -> None:
        """Without retries, what was called before a send failed does not stand in the queue where that one is missing.

        A caller that has heard of another failure may go on, once all have heard. A send that failed has no queue: it
        is that of its key.
        """
        places, queues = self._places, dict[int, MessageQueue]()
        for sent in calls:
            for queue, _ in places.get(sent.texts[0], []):
                queues.setdefault(sent.number % KEYS, queue)
        for sent in calls:
            if sent.retried or not isinstance(sent.outcome, SendOutcome) or any(text in places for text in sent.texts):
                continue
            its = queues.get(sent.number % KEYS)
            for later in calls[calls.index(sent) + 1 :]:
                if later.called < sent.ended and any(
                    queue == its and (not later.follows or offset < sent.ends.get(queue, 0))
                    for queue, offset in places.get(later.texts[0], [])
                ):
                    told = f"message {later.texts[0]} is stored, and {sent.texts[0]}, called before it, is not"
                    self._findings.add(Wrong.OVERTAKEN, told, queue=place_of(its) if its else "")


def text_of(message: MessageExt) -> str:
    """The text of a message, without what makes it large."""
    return message.body.decode().strip()
