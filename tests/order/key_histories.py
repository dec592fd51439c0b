"""Random histories of one queue consumed by key: calls of several keys interleave, fail, die and are taken over.

As `legal_histories`, but the owner may call for any key whose turn it is, and commits the lowest offset not handled.
"""

from hypothesis import strategies as st

from tests.order.stories import SUCCESS, SUSPEND, Story

__all__ = ["key_histories"]

ACTIONS = ("send", "handle", "handle", "handle", "handle", "commit", "die", "hand over")
BEGINNING = ("send", "send", "handle", "handle", "commit")
END = ("send", "handle", "hand over", "send")


class KeyModel:
    """One queue, its stored commit, and what its present owner has handled."""

    def __init__(self, keys: str) -> None:
        self.story = Story()
        self.keys = keys
        self.messages = 0
        self.stored = 0
        self.owner = 0
        self.acquire()

    @property
    def client(self) -> str:
        return f"client-{self.owner % 2}"

    def acquire(self) -> None:
        """The next owner begins at the stored commit: what others handled above it, it handles again."""
        self.owner += 1
        self.handled = set(range(self.stored))
        self.story.own(self.client, self.owner, self.stored)

    def send(self) -> None:
        self.story.sent(*range(self.messages, self.messages + 3))
        self.messages += 3

    def turns(self) -> dict[str, list[int]]:
        """What is not handled yet, by key, in order."""
        left: dict[str, list[int]] = {}
        for offset in range(self.messages):
            if offset not in self.handled:
                left.setdefault(self.keys[offset % len(self.keys)], []).append(offset)
        return left

    def handle(self, key: str, count: int, status: str) -> None:
        offsets = self.turns()[key][:count]
        self.story.handle(self.client, self.owner, *offsets, status=status, keys=self.keys, batch=True, ordering="key")
        if status != SUSPEND:
            self.handled.update(offsets)

    def commit(self) -> None:
        lowest = min(set(range(self.messages + 1)) - self.handled)
        if lowest > self.stored:
            self.story.commit(self.client, self.owner, lowest)
            self.stored = lowest

    def die(self) -> None:
        self.story.now_ms += 60_001
        self.acquire()

    def hand_over(self) -> None:
        self.commit()
        self.story.record(self.client, "dropped", period=self.owner, why="rebalance")
        self.acquire()

    def finish(self) -> Story:
        while turns := self.turns():
            self.handle(max(turns), 3, SUCCESS)
        self.commit()
        return self.story


@st.composite
def key_histories(draw: st.DrawFn) -> Story:
    """A legal history of up to 39 steps: never without a commit, a handover and calls of several keys."""
    model = KeyModel(draw(st.sampled_from(["KL", "KLM", "KLMKN"])))
    for action in [*BEGINNING, *draw(st.lists(st.sampled_from(ACTIONS), max_size=30)), *END]:
        if action == "handle":
            if turns := model.turns():
                key = draw(st.sampled_from(sorted(turns)))
                model.handle(key, draw(st.integers(1, 3)), draw(st.sampled_from([SUCCESS, SUCCESS, SUSPEND])))
        elif action == "hand over":
            model.hand_over()
        else:
            getattr(model, action)()
    return model.finish()
