"""Exhibits about the place at which a group that pops goes on, and about batches of one key."""

from collections.abc import Callable
from itertools import count
from typing import Any

from lockstep.broker.messages.pop.pops import Pops
from lockstep.broker.messages.pop.port import Delivered, Order
from lockstep.broker.messages.pop.rocketmq import RocketMqQueue
from lockstep.client import Producer
from lockstep.order import Kind
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import GOING, Swarm
from lockstep.simulation.museum.variant import edited, replaced, variant

__all__ = ["BATCH_OF_ONE_KEY", "PULL_OFFSET", "RESET_WITHOUT_EFFECT", "STARTS_AGAIN"]

_Method = Callable[..., Any]


def _read_on(pop: _Method) -> _Method:
    """As a pull: behind what was read, and not from the first message that is not acknowledged on."""

    def pop_behind(self: Any, order: Order, committed: int, reader: Any, now_ms: int) -> Delivered | None:
        before = self.record
        if before is not None and before.free_ms(now_ms) is None:
            committed = max(committed, before.offsets[-1] + 1)
        found: Delivered | None = pop(self, order, committed, reader, now_ms)
        return found

    return pop_behind


def _in_turn(send_batch: _Method) -> _Method:
    numbers = count()

    async def send(self: Any, messages: Any, **_place: Any) -> Any:
        queues = self._parts.queues.known(messages[0].topic)
        place = {"queue": queues[next(numbers) % len(queues)]} if queues else {}
        return await send_batch(self, messages, **place)

    return send


PULL_OFFSET = Exhibit(
    key="pull-offset",
    report="apache/rocketmq #9695",
    title="a pop in order goes on behind what was read, and leaves out what was not acknowledged",
    told=(
        "A pop in order asked for the offset up to which the group had pulled, and not for the one up to which it "
        "had consumed. When a delivery was over without its acknowledgements, the next one began behind it."
    ),
    translated="When a delivery is over, the queue is read from behind its last message on.",
    rule="A queue is given again from the first message on that is not acknowledged (wire.md 18.3).",
    kind=Kind.LOST_WRITE,
    variant=replaced(RocketMqQueue, "pop", _read_on),
    swarm=Swarm(faults=GOING, consumers=(2, 3), invisible_ms=(5000, 20_000), count_max=(4, 16), burst=(4, 8)),
)

RESET_WITHOUT_EFFECT = Exhibit(
    key="reset-without-effect",
    report="apache/rocketmq #10229",
    title="an administrator sets the group back, and an acknowledgement brings it forward again",
    told=(
        "The offset of a FIFO group that pops was reset, and the group went on where it was. The broker kept the "
        "record of the delivery under way, and its acknowledgements stored offsets over the reset."
    ),
    translated="A reset leaves the deliveries under way as they are.",
    rule="A reset ends all deliveries of the queue: their acknowledgements are refused (wire.md 18.4).",
    kind=Wrong.RESET_UNDONE,
    mode=LockMode.FENCED,
    variant=replaced(Pops, "reset", lambda _: lambda *_arguments: None),
    swarm=Swarm(
        faults=GOING, consumers=(1, 2), invisible_ms=(60_000,), work_ms=(20, 200), burst=(4, 8, 16), resets=True
    ),
)

STARTS_AGAIN = Exhibit(
    key="starts-again",
    report="apache/rocketmq #3503",
    title="after a restart of the broker a group that pops begins again at the first message",
    told=(
        "A broker was restarted, and the groups that pop read their topics from the beginning. What they had "
        "consumed was kept in memory alone; groups that pull went on where they were."
    ),
    translated=(
        "A broker that starts does not read the deliveries from its file, and a queue without deliveries begins at its "
        "first message."
    ),
    rule="Each acknowledgement moves the group's stored offset, which a restart reads (wire.md 18.3).",
    kind=Kind.STORED_REGRESS,
    variant=variant(
        replaced(Pops, "restore", lambda _: lambda *_arguments: None),
        edited(
            "lockstep.broker.core.pop",
            "_committed",
            "offset < 0",
            "offset < 0 or broker.messages.pops.fifo.queue(topic, group, queue_id, now_ms).saved() is None",
        ),
    ),
    swarm=Swarm(faults=("restart-broker", "leave"), consumers=(1, 2), invisible_ms=(20_000,), restarts=True),
)

BATCH_OF_ONE_KEY = Exhibit(
    key="batch-of-one-key",
    report="apache/rocketmq #7999",
    title="a batch ignores its message group and goes to the next queue in turn",
    told=(
        "Messages of one message group came out of order. The proxy chose the queue by the group only for a "
        "request with one message; a request with two or more went round robin, so the messages of one group lay in "
        "several queues, which several consumers read."
    ),
    translated="The producer sends a batch to the queues in turn, whatever its sharding key is.",
    rule="A batch goes to the queue of its key, or is refused (docs/order.md 2, From key to queue).",
    kind=Kind.KEY_IN_TWO_QUEUES,
    variant=replaced(Producer, "send_batch", _in_turn),
    swarm=Swarm(faults=("slow",), consumers=(1, 2), invisible_ms=(60_000,), messages=12, burst=(1, 1, 2)),
)
