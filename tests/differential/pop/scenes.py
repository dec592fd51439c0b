"""Timelines of POP: what a broker gives to whom, and when. Each scene is played on both brokers at once.

Invisible times are a few seconds; the queue is queue 0 where a scene has but one.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.differential.pop.player import Given, Scene

__all__ = ["REVIVED_EARLIER_S", "REVIVED_WITHIN_S", "SCENES", "Play"]

LONG_S: Final = 20.0  # a wait that something else ends


# Without order, what is not acknowledged comes again at the end of its invisible time; in RocketMQ its checkpoint is a
# timer message, which a scan finds when it is 2 s old. A scan waits up to 4 s for more, and begins up to 4 s after
# the last: 60 deliveries came 2.0 to 5.2 s late.
REVIVED_EARLIER_S: Final = 4.0
REVIVED_WITHIN_S: Final = 2.3


class Play(NamedTuple):
    """`earlier_s`: by how much times are less on our broker. `within_s`: by how much they may differ else."""

    play: Callable[[Scene], None]
    queues: int = 1
    in_order: bool = True
    earlier_s: float = 0.0
    within_s: float = 0.3


def blocked(scene: Scene) -> None:
    """A message that is not acknowledged holds all others of its queue back."""
    scene.send("a0", "b1")
    scene.see("the first", scene.client().pop(1).bodies)
    scene.start_clock()
    scene.see("nothing", scene.client().pop(1, poll_s=1).bodies, timed=True)


def expiry(scene: Scene) -> None:
    """A waiting pop gets the message when its invisible time ends, as delivered once before."""
    scene.send("a0")
    scene.client().pop(1)
    scene.start_clock()
    given = scene.client().pop(1, poll_s=LONG_S)
    scene.see("again", (given.bodies, given.counts), timed=True)


def attempt(scene: Scene) -> None:
    """Whoever names the attempt enters again, with a larger batch too; the invisible time begins anew."""
    scene.send("a0", "b1")
    client = scene.client()
    scene.start_clock()
    first = client.pop(1, attempt="one")
    scene.until(1)
    again = client.pop(1, attempt="one")
    scene.see("the same", (again.bodies, again.counts))
    scene.see("acknowledged by the old receipt", client.ack(first.receipts["a0"]))
    scene.see("committed", client.committed())
    larger = scene.client().pop(2, attempt="one")
    scene.start_clock()
    scene.see("another client, and more", (larger.bodies, larger.counts))
    later = scene.client().pop(2, poll_s=LONG_S)
    scene.see("after the last", (later.bodies, later.counts), timed=True)


def wake_on_ack(scene: Scene) -> None:
    scene.send("a0", "b1")
    holder, waiter = scene.client(), scene.client()
    given = holder.pop(1)
    waiting = scene.later(lambda: waiter.pop(1, poll_s=LONG_S))
    scene.start_clock()
    holder.ack(given.receipts["a0"])
    scene.see("the next", waiting.result().bodies, timed=True)


def wake_on_arrival(scene: Scene) -> None:
    waiter = scene.client()
    waiting = scene.later(lambda: waiter.pop(1, poll_s=LONG_S))
    scene.start_clock()
    scene.send("a0")
    scene.see("the new one", waiting.result().bodies, timed=True)


def partly_acknowledged(scene: Scene) -> None:
    """Messages acknowledged behind one that is not come again with it."""
    scene.send(*(f"m{number}" for number in range(6)))
    client = scene.client()
    given = client.pop(4)
    scene.start_clock()
    for body in ("m1", "m2"):
        client.ack(given.receipts[body])
    scene.see("committed", client.committed())
    again = scene.client().pop(poll_s=LONG_S)
    scene.see("all", (again.bodies, again.counts), timed=True)


def committed_offsets(scene: Scene) -> None:
    """The group's offset is the first message that is not acknowledged."""
    scene.send("m0", "m1", "m2", "m3")
    client = scene.client()
    given = client.pop(4)
    for body in ("m3", "m1", "m0", "m2"):
        client.ack(given.receipts[body])
        scene.see(f"after {body}", client.committed())


def half_changed(scene: Scene) -> None:
    """One message that is visible does not open the queue while another is not."""
    scene.send("m0", "m1")
    client = scene.client()
    given = client.pop(2)
    scene.start_clock()
    client.change(given.receipts["m0"], 0)
    again = client.pop(2, poll_s=LONG_S)
    scene.see("both", (again.bodies, again.counts), timed=True)
    for receipt in again.receipts.values():
        client.change(receipt, 0)
    scene.start_clock()
    at_once = client.pop(2, poll_s=LONG_S)
    scene.see("both at once", (at_once.bodies, at_once.counts), timed=True)


def longer_and_shorter(scene: Scene) -> None:
    """A change counts from now, and may shorten."""
    scene.send("m0")
    client = scene.client()
    given = client.pop(1, invisible_s=2)
    scene.start_clock()
    client.change(given.receipts["m0"], 4)
    again = client.pop(1, invisible_s=60, poll_s=LONG_S)
    scene.see("after the longer one", again.counts, timed=True)
    scene.start_clock()
    client.change(again.receipts["m0"], 1)
    scene.see("after the shorter one", client.pop(1, poll_s=LONG_S).counts, timed=True)


def receipts_after_a_change(scene: Scene) -> None:
    """The receipt of the delivery and that of its change acknowledge both."""
    scene.send("m0", "m1")
    client = scene.client()
    for body, takes_new in (("m0", False), ("m1", True)):
        old = client.pop(1).receipts[body]
        new = client.change(old, 30)
        scene.see(f"{body} acknowledged", client.ack(new if takes_new else old))
        scene.see("committed", client.committed())


def attempts(scene: Scene) -> None:
    scene.send("m0")
    client = scene.client()
    for number in range(4):
        given = client.pop(1, poll_s=LONG_S)
        scene.see(f"delivery {number}", given.counts)
        client.change(given.receipts["m0"], 0)


def attempts_beside_a_new_message(scene: Scene) -> None:
    scene.send("m0")
    client = scene.client()
    client.change(client.pop(1).receipts["m0"], 0)
    scene.send("m1")
    given = client.pop(2, poll_s=LONG_S)
    scene.see("both", (given.bodies, given.counts))


def several_queues(scene: Scene) -> None:
    """One pop takes from all queues, in order in each; a new message of a held queue waits."""
    for queue in range(4):
        scene.send(*(f"{queue}{number}" for number in range(4)), queue=queue)
    client = scene.client()
    given = client.pop()
    by_queue = [[body for body in given.bodies if body[0] == str(queue)] for queue in range(4)]
    scene.see("all", by_queue)
    scene.send("00-new")
    scene.see("nothing", client.pop().bodies)


def several_consumers(scene: Scene) -> None:
    """A pop takes from one queue until it is full, so a small one holds few queues."""
    for queue in range(4):
        scene.send(*(f"{queue}{number}" for number in range(5)), queue=queue)
    sizes = [len(scene.client().pop(3).bodies) for _ in range(5)]
    scene.see("sizes", sizes)


def a_batch_of_two_queues(scene: Scene) -> None:
    for queue in range(2):
        scene.send(f"{queue}0", f"{queue}1", queue=queue)
    client = scene.client()
    scene.see("sizes", [len(client.pop(3).bodies), len(client.pop(3).bodies)])


def late_acknowledgement(scene: Scene) -> None:
    """After the invisible time and before the next delivery."""
    scene.send("m0", "m1")
    client = scene.client()
    scene.start_clock()
    given = client.pop(1, invisible_s=1)
    scene.until(1.5)
    scene.see("answer", client.ack(given.receipts["m0"]))
    scene.see("committed", client.committed())
    scene.see("next", client.pop(1).bodies)


def stale_acknowledgement(scene: Scene) -> None:
    """After another delivery: answered with success, and ignored."""
    scene.send("m0", "m1")
    client, other = scene.client(), scene.client()
    given = client.pop(1, invisible_s=1)
    again = other.pop(1, invisible_s=30, poll_s=LONG_S)
    scene.see("again", again.counts)
    scene.see("answer", client.ack(given.receipts["m0"]))
    scene.see("committed", client.committed())
    scene.see("still held", client.pop(1).bodies)


def without_order(scene: Scene) -> None:
    """Messages go to whoever asks; one that is not acknowledged comes again by the retry topic."""
    scene.send("m0", "m1", "m2", "m3")
    client, other = scene.client(), scene.client()
    first = client.pop(1)
    scene.start_clock()
    rest: list[Given] = [other.pop(1), other.pop(2)]
    scene.see("given", [each.bodies for each in (first, *rest)])
    for each in rest:
        for receipt in each.receipts.values():
            scene.see("answer", other.ack(receipt))
    again = other.pop(1, poll_s=LONG_S)
    scene.see("again", (again.bodies, again.counts), timed=True)


def without_order_changed(scene: Scene) -> None:
    """A change begins a new delivery; the old receipt acknowledges nothing."""
    scene.send("m0")
    client = scene.client()
    given = client.pop(1, invisible_s=30)
    scene.start_clock()
    client.change(given.receipts["m0"], 2)
    scene.see("answer", client.ack(given.receipts["m0"]))
    again = client.pop(1, poll_s=LONG_S)
    scene.see("again", (again.bodies, again.counts), timed=True)


def delayed(scene: Scene) -> None:
    """Messages come when their time has: which comes when is not compared, for RocketMQ is up to 2 s late."""
    scene.send("later", TIMER_DELAY_MS="2500")
    scene.send("now")
    client = scene.client()
    first = client.pop()
    scene.see("at once", first.bodies)
    client.ack(first.receipts["now"])
    scene.see("then", client.pop(poll_s=LONG_S).bodies)


SCENES: Final = {
    play.play.__name__: play
    for play in (
        Play(blocked),
        Play(expiry),
        Play(attempt),
        Play(wake_on_ack),
        Play(wake_on_arrival),
        Play(partly_acknowledged),
        Play(committed_offsets),
        Play(half_changed),
        Play(longer_and_shorter),
        Play(receipts_after_a_change),
        Play(attempts),
        Play(attempts_beside_a_new_message),
        Play(several_queues, queues=4),
        Play(several_consumers, queues=4),
        Play(a_batch_of_two_queues, queues=2),
        Play(late_acknowledgement),
        Play(stale_acknowledgement),
        Play(delayed),
        Play(without_order, in_order=False, earlier_s=REVIVED_EARLIER_S, within_s=REVIVED_WITHIN_S),
        Play(without_order_changed, in_order=False, earlier_s=REVIVED_EARLIER_S, within_s=REVIVED_WITHIN_S),
    )
}
