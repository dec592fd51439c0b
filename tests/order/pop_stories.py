"""Traces of consumers that pop, by hand and by a small model: one queue, one group, one clock."""

from typing import Any, Final

from hypothesis import strategies as st

from tests.order.stories import EPOCH_MS, SUCCESS, SUSPEND, Story

__all__ = ["INVISIBLE_MS", "PopStory", "pop_histories"]

INVISIBLE_MS: Final = 1000
ACTIONS: Final = ("send", "pop", "pop", "call", "call", "call", "fail", "lengthen", "leave", "wait")


class PopStory(Story):
    """Deliveries are named by the client, the offset and `pop_ms`. Keys go round: K L K L."""

    def deliver(self, client: str, *offsets: int, pop_ms: int, keys: str = "KL", **fields: Any) -> list[dict[str, Any]]:
        """The answer to a pop: all its records have one time."""
        self.now_ms += 1
        found = []
        for offset in offsets:
            self.now_ms -= 1
            whole = {"invisible_ms": INVISIBLE_MS, "reconsume_times": 0, **self._of(offset, pop_ms, keys), **fields}
            found.append(self.record(client, "delivered", **whole))
        return found

    def call(
        self, client: str, offset: int, *, pop_ms: int, ms: int = 5, status: str = SUCCESS, keys: str = "KL"
    ) -> dict[str, Any]:
        """A call that takes some time. The record is returned, so that a test may bend it."""
        begin_ms = self.now_ms
        self.now_ms += ms - 1
        begin = {"begin_wall_ms": EPOCH_MS + begin_ms, "begin_mono_ns": begin_ms * 1_000_000}
        fields = self._of(offset, pop_ms, keys)
        return self.record(client, "handled", **fields, **begin, status=status, reconsume_times=0, ordering="key")

    def answer(self, event: str, client: str, offset: int, *, pop_ms: int, **fields: Any) -> dict[str, Any]:
        """acked, refused or renewed."""
        return self.record(client, event, offset=offset, pop_ms=pop_ms, **fields)

    def stored(self, offset: int) -> None:
        """What the broker says."""
        del self.record("broker", "stored", offset=offset)["client_id"]

    @staticmethod
    def _of(offset: int, pop_ms: int, keys: str) -> dict[str, Any]:
        return {"offset": offset, "pop_ms": pop_ms, "key": keys[offset % len(keys)], "msg_id": f"id-{offset}"}


class _Held:
    """A message under way at a client."""

    def __init__(self, client: str, pop_ms: int, until_ms: int) -> None:
        self.client, self.pop_ms, self.until_ms = client, pop_ms, until_ms


class PopModel:
    """A queue whose keys wait for their own messages alone, as with fenced locks, or all together, as in RocketMQ.

    Args:
        by_key: Of the two ways.
    """

    def __init__(self, keys: str, *, by_key: bool) -> None:
        self.story = PopStory()
        self.keys, self.by_key = keys, by_key
        self.messages = self.stored = self.pops = 0
        self.acked, self.held = set[int](), dict[int, _Held]()

    def send(self) -> None:
        for _ in range(2):
            key = self.keys[self.messages % len(self.keys)]
            self.story.record(
                "producer", "sent", offset=self.messages, key=key, msg_id=f"id-{self.messages}", group="p"
            )
            self.messages += 1

    def pop(self, client: str, count: int) -> None:
        """Deliver what is free, in order."""
        now_ms, busy, offsets = self.story.now_ms, set[str](), list[int]()
        if not self.by_key and any(one.until_ms > now_ms for one in self.held.values()):
            return
        for offset in range(self.stored, self.messages):
            key, held = self.keys[offset % len(self.keys)], self.held.get(offset)
            if held is not None and held.until_ms > now_ms:
                busy.add(key)
            # RocketMQ gives what was acknowledged again, behind what was not.
            elif key not in busy and not (self.by_key and offset in self.acked) and len(offsets) < count:
                offsets.append(offset)
        if not offsets:
            return
        self.pops += 1
        epoch = {"epoch": self.pops} if self.by_key else {}
        self.story.deliver(client, *offsets, pop_ms=self.pops, keys=self.keys, **epoch)
        self.acked.difference_update(offsets)
        for offset in offsets:
            self.held[offset] = _Held(client, self.pops, self.story.now_ms + INVISIBLE_MS - 1)

    def call(self, place: int, ms: int, *, status: str = SUCCESS) -> None:
        """A client handles the first message of a key that it holds, in time, and acknowledges it, or gives it back."""
        firsts = dict[tuple[str, int, str], int]()
        for offset, held in sorted(self.held.items()):
            firsts.setdefault((held.client, held.pop_ms, self.keys[offset % len(self.keys)]), offset)
        if not firsts:
            return
        offset = [*firsts.values()][place % len(firsts)]
        held, now_ms = self.held[offset], self.story.now_ms
        if now_ms + ms >= held.until_ms:
            return
        self.story.call(held.client, offset, pop_ms=held.pop_ms, ms=ms, status=status, keys=self.keys)
        if status == SUSPEND:
            self.give_back(held)
            return
        self.story.answer("acked", held.client, offset, pop_ms=held.pop_ms)
        del self.held[offset]
        self.acked.add(offset)
        while self.stored in self.acked:
            self.stored += 1
        self.story.stored(self.stored)

    def give_back(self, held: _Held) -> None:
        """All that this pop delivered, so that what comes next is the first of its key."""
        for offset in [offset for offset, one in self.held.items() if one.pop_ms == held.pop_ms]:
            self.story.answer("renewed", held.client, offset, pop_ms=held.pop_ms, invisible_ms=0)
            del self.held[offset]

    def lengthen(self) -> None:
        for offset, held in self.held.items():
            if held.until_ms > self.story.now_ms + 1:
                self.story.answer("renewed", held.client, offset, pop_ms=held.pop_ms, invisible_ms=INVISIBLE_MS)
                held.until_ms = self.story.now_ms + INVISIBLE_MS - 1

    def wait(self, ms: int) -> None:
        self.story.now_ms += ms
        self.held = {offset: held for offset, held in self.held.items() if held.until_ms > self.story.now_ms}


@st.composite
def pop_histories(draw: st.DrawFn) -> PopStory:
    """Sends, pops, calls, failures, longer times, clients that leave and times that end; at the end all is handled."""
    model = PopModel(draw(st.sampled_from(("K", "KL", "KLM"))), by_key=draw(st.booleans()))
    model.send()
    for action in draw(st.lists(st.sampled_from(ACTIONS), max_size=40)):
        number = draw(st.integers(0, 5))
        if action == "send":
            model.send()
        elif action == "pop":
            model.pop(f"client-{number % 3}", 1 + number)
        elif action in ("call", "fail"):
            model.call(number, 5 + 100 * (number % 3), status=SUSPEND if action == "fail" else SUCCESS)
        elif action == "lengthen":
            model.lengthen()
        else:
            model.wait(INVISIBLE_MS * 2 if action == "leave" else 200 * number)
    while model.stored < model.messages:
        model.wait(2 * INVISIBLE_MS)
        model.pop("client-9", 6)
        for _ in range(6):
            model.call(0, 5)
    return model.story
