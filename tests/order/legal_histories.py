"""Random histories that RocketMQ's rules allow, from a model small enough to be seen right: one queue, two clients.

The model keeps what a broker would: the stored commit and the number of messages. Everything that clients may do to
one queue happens by chance: calls of one to three messages, suspensions, commits, manual commits and rollbacks, deaths
with and without a last commit that arrives, orderly handovers. At the end a last owner handles all there is.
"""

from hypothesis import strategies as st

from tests.order.stories import SUCCESS, SUSPEND, Story

__all__ = ["histories"]

ACTIONS = ("send", "handle", "handle", "handle", "commit", "die", "die committing", "hand over")
BEGINNING = ("send", "send", "handle", "commit")
END = ("send", "handle", "hand over", "send")


class Model:
    """One queue, its stored commit and its owner."""

    def __init__(self, keys: str, manual: bool) -> None:
        self.story = Story()
        self.keys = keys
        self.manual = manual
        self.messages = 0
        self.stored = 0
        self.owner = 0
        self.period = 0
        self.acquire()

    @property
    def client(self) -> str:
        return f"client-{self.owner % 2}"

    def acquire(self) -> None:
        """The next owner takes the queue over at the stored commit."""
        self.owner += 1
        self.period += 1
        self.next = self.committed = self.stored
        self.story.own(self.client, self.period, self.stored)

    def send(self) -> None:
        self.story.sent(self.messages, self.messages + 1)
        self.messages += 2

    def handle(self, count: int, status: str) -> None:
        """One listener call of up to `count` messages."""
        offsets = range(self.next, min(self.next + count, self.messages))
        if not offsets:
            return
        self.story.handle(self.client, self.period, *offsets, status=status, keys=self.keys, batch=True)
        if status == "ROLLBACK":
            self.next = self.committed
        elif status != SUSPEND:
            self.next = offsets.stop
            if status == "COMMIT" or not self.manual:
                self.committed = self.next

    def commit(self) -> None:
        if self.committed > self.stored:
            self.story.commit(self.client, self.period, self.committed)
            self.stored = self.committed

    def die(self, commit: bool) -> None:
        """Killed: a commit that was written down at the last moment never arrives; the lock has to expire."""
        if commit and self.committed > self.stored:
            self.story.record(self.client, "committed", period=self.period, offset=self.committed)
        self.story.now_ms += 60_001
        self.acquire()

    def hand_over(self) -> None:
        self.commit()
        self.story.record(self.client, "dropped", period=self.period, why="rebalance")
        self.acquire()

    def finish(self) -> Story:
        while self.next < self.messages:
            self.handle(3, "COMMIT" if self.manual else SUCCESS)
        self.commit()
        return self.story


@st.composite
def histories(draw: st.DrawFn) -> Story:
    """A legal history of up to 38 steps: never without a commit, a handover and several calls."""
    manual = draw(st.booleans())
    model = Model(draw(st.sampled_from(["K", "KL", "KLM"])), manual)
    statuses = [SUCCESS, SUCCESS, SUSPEND, "COMMIT", "ROLLBACK"] if manual else [SUCCESS, SUCCESS, SUSPEND]
    for action in [*BEGINNING, *draw(st.lists(st.sampled_from(ACTIONS), max_size=30)), *END]:
        if action == "send":
            model.send()
        elif action == "handle":
            model.handle(draw(st.integers(1, 3)), draw(st.sampled_from(statuses)))
        elif action == "commit":
            model.commit()
        elif action == "hand over":
            model.hand_over()
        else:
            model.die(commit=action == "die committing")
    return model.finish()
