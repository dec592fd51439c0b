"""Sends to one queue are sent and stored in call order, with any number in flight (docs/order.md 2)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.send_result import SendResult
from lockstep.protocol.codes import ResponseCode
from lockstep.simulation import World, simulate
from tests.client.producer.send_world import SendWorld, settle

Step = tuple[str, int]

BUSY, ILLEGAL = ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL


def cancel(world: SendWorld, choice: int) -> None:
    running = [sent for sent in world.sends if not sent.task.done()]
    if running:
        running[choice % len(running)].task.cancel()


def late_delivery(world: SendWorld, choice: int) -> None:
    if world.links:
        world.links[choice % len(world.links)].deliver()


def on_link(act: Callable[[SendWorld], None]) -> Callable[[SendWorld, int], None]:
    return lambda world, _: act(world) if world.link() is not None else None


ACTIONS: dict[str, Callable[[SendWorld, int], object]] = {
    "send": lambda world, _: world.send(),
    "one way": lambda world, _: world.send_one_way(),
    "cancel": cancel,
    "connect": lambda world, _: world.let_connect(succeed=True),
    "refuse the connect": lambda world, _: world.let_connect(succeed=False),
    "deliver": late_delivery,
    "answer": on_link(lambda world: world.links[-1].answer()),
    "busy": on_link(lambda world: world.links[-1].deliver(BUSY)),
    "illegal": on_link(lambda world: world.links[-1].deliver(ILLEGAL)),
    "time out": on_link(lambda world: world.links[-1].time_out()),
    "lose": on_link(lambda world: world.links[-1].lose()),
    "pause": on_link(lambda world: world.links[-1].pause(True)),
    "resume": on_link(lambda world: world.links[-1].pause(False)),
    "restart": lambda world, _: world.restart_broker(),
    "wait": lambda _, choice: asyncio.sleep((0.05, 0.1, 0.2, 3)[choice]),
}
# Ordinary things happen more often than faults.
NAMES = [*ACTIONS, "send", "send", "send", "connect", "connect", "deliver", "deliver", "answer", "answer", "resume"]
schedules = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=40)


def run(steps: list[Step], *, agreed: bool, retry: bool, together: bool = False, batches: bool = False) -> SendWorld:
    """Each step is an action and how often the loop turns before the next one."""

    async def scenario(simulated: World) -> SendWorld:
        runtime = simulated.host("producer")
        config = ProducerConfig(retry_keyed=retry, auto_batch=batches, send_together_max=5 if batches else 256)
        world = SendWorld(runtime, config, agreed, together=together)

        async def play() -> None:
            for name, turns in steps:
                pause = ACTIONS[name](world, turns)
                if isinstance(pause, Awaitable):
                    await pause
                await settle(turns)
            await world.drain()
            last = world.send()
            await world.drain()
            assert isinstance(last.outcome, SendResult), f"the sequence is not usable any more: {last.outcome}"

        await runtime.run(play())
        return world

    return simulate(scenario, errors_allowed=False).value


def check_order(world: SendWorld) -> None:
    """Nothing overtook, and every caller was told the truth."""
    assert world.first_stored == sorted(world.first_stored), f"overtaken: {world.stored}"
    by_generation: dict[int, list[tuple[int, int]]] = {}
    for number, generation, sequence in world.departed:
        if generation is not None and sequence is not None:
            by_generation.setdefault(generation, []).append((sequence, number))
    for pairs in by_generation.values():
        assert [sequence for sequence, _ in pairs] == list(range(len(pairs)))
        assert [number for _, number in pairs] == sorted(number for _, number in pairs)
    for sent in world.sends:
        if isinstance(sent.outcome, SendResult):
            assert world.stored[sent.outcome.queue_offset] == sent.number
        elif isinstance(sent.outcome, SendError) and sent.outcome.outcome is not SendOutcome.UNKNOWN:
            assert sent.number not in world.stored, f"{sent.outcome} and it is stored"


def check_nothing_after_a_failure(world: SendWorld) -> None:
    """Of a send that is not stored, no later one that left before its caller was told is stored."""
    for failed in world.sends:
        if isinstance(failed.outcome, SendError) and failed.outcome.outcome is not SendOutcome.UNKNOWN:
            for later in world.sends:
                if failed.number < later.number and later.departed_at < failed.ended_at:
                    assert later.number not in world.stored, f"{later.number} overtook {failed.number}"


CONNECTED: list[Step] = [("send", 3), ("connect", 3), ("deliver", 1), ("answer", 3)]
# A send is called in the instant in which the connection is lost under another one, and waits for a new one meanwhile.
CALLED_INTO_A_LOSS: list[Step] = [*CONNECTED, ("send", 3), ("send", 0), ("lose", 0), ("connect", 3), ("wait", 2)]
RESTARTED: list[Step] = [*CONNECTED, ("restart", 3), ("send", 3), ("connect", 3)]
CANCELLED_AND_REFUSED: list[Step] = [*CONNECTED, ("send", 3), ("cancel", 1), ("busy", 1), ("answer", 1)]
CANCELLED_WHILE_CONNECTING: list[Step] = [("send", 2), ("cancel", 2), ("send", 2), ("connect", 2)]
ONE_WAY_BETWEEN: list[Step] = [*CONNECTED, ("one way", 3), ("send", 2), ("deliver", 0), ("deliver", 0)]
STORED_AND_LOST_THEN_REFUSED: list[Step] = [
    *CONNECTED, ("send", 3), ("deliver", 3), ("lose", 3), ("wait", 2), ("connect", 3), ("illegal", 3), ("answer", 3),
]  # fmt: skip
CANCELLED_IN_FLIGHT: list[Step] = [*CONNECTED, ("send", 3), ("cancel", 3), ("send", 3)]


@given(schedules)
@example(CALLED_INTO_A_LOSS)
@example(RESTARTED)
@example(CANCELLED_AND_REFUSED)
@example(CANCELLED_WHILE_CONNECTING)
@example(ONE_WAY_BETWEEN)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_order_to_a_broker_that_checks_it(steps: list[Step]) -> None:
    """Any number in flight: stored in call order, nothing behind a failure, no sequence wedged."""
    world = run(steps, agreed=True, retry=False)
    check_order(world)
    check_nothing_after_a_failure(world)


@given(schedules)
@example(CALLED_INTO_A_LOSS)
@example(RESTARTED)
@example(STORED_AND_LOST_THEN_REFUSED)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_order_with_repeats(steps: list[Step]) -> None:
    """`retry_keyed`: repeats leave in call order too, and an unanswered attempt is never called refused or unsent."""
    check_order(run(steps, agreed=True, retry=True))


BURST: list[Step] = [*CONNECTED, *[("send", 0)] * 6, ("send", 3)]
REFUSED_IN_A_FRAME: list[Step] = [*BURST, ("deliver", 0), ("illegal", 0), ("answer", 0), ("answer", 3), ("send", 2)]
LOST_UNDER_A_FRAME: list[Step] = [*BURST, ("send", 1), ("send", 1), ("lose", 0), ("send", 0), ("connect", 3)]
CANCELLED_IN_A_FRAME: list[Step] = [*BURST[:-2], ("cancel", 0), ("send", 0), ("send", 3), ("cancel", 1), ("send", 2)]


@given(schedules, st.booleans())
@example(BURST, False)
@example(REFUSED_IN_A_FRAME, False)
@example(LOST_UNDER_A_FRAME, False)
@example(LOST_UNDER_A_FRAME, True)
@example(CANCELLED_IN_A_FRAME, False)
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_order_of_sends_that_leave_together(steps: list[Step], retry: bool) -> None:
    """Whatever happens between bursts: order, outcomes and numbers are those of sends that leave one by one."""
    world = run(steps, agreed=True, retry=retry, together=True)
    check_order(world)
    if not retry:
        check_nothing_after_a_failure(world)


def test_a_burst_leaves_in_three_requests() -> None:
    """The first one at once and by itself, the others of the same turn in two frames."""
    world = run([*CONNECTED, *[("send", 0)] * 9], agreed=True, retry=False, together=True)
    assert (world.frames, world.stored) == (2, list(range(11)))


@given(schedules, st.booleans())
@example(CALLED_INTO_A_LOSS, False)
@example(CALLED_INTO_A_LOSS, True)
@example(CANCELLED_IN_FLIGHT, False)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_order_to_any_other_broker(steps: list[Step], retry: bool) -> None:
    """One at a time, whatever its callers do; only a time-out leaves one behind that may still arrive."""
    world = run(steps, agreed=False, retry=retry)
    check_order(world)
    if not retry:
        check_nothing_after_a_failure(world)
    assert world.under_way_max <= 1
    assert {generation for _, generation, _ in world.departed} <= {None}


@given(schedules, st.booleans())
@example(BURST, False)
@example(REFUSED_IN_A_FRAME, False)
@example(REFUSED_IN_A_FRAME, True)
@example(LOST_UNDER_A_FRAME, False)
@example(LOST_UNDER_A_FRAME, True)
@example(CANCELLED_IN_A_FRAME, False)
@example(CANCELLED_IN_A_FRAME, True)
@settings(max_examples=4 * settings().max_examples, deadline=None)
def test_order_of_batches_to_any_other_broker(steps: list[Step], retry: bool) -> None:
    """`auto_batch`: one request at a time, whatever its callers do; order and outcomes are those of single sends."""
    world = run(steps, agreed=False, retry=retry, batches=True)
    check_order(world)
    if not retry:
        check_nothing_after_a_failure(world)
    assert world.under_way_max <= 1


@pytest.mark.parametrize(("batches", "frames"), [(True, 2), (False, 0)])
def test_what_waits_for_an_answer_leaves_in_batches(batches: bool, frames: int) -> None:
    """The first one leaves at once and by itself; the others behind it, at most `send_together_max` in a batch."""
    world = run([*CONNECTED, *[("send", 0)] * 9], agreed=False, retry=False, batches=batches)
    assert (world.frames, world.stored) == (frames, list(range(11)))


def test_a_broker_that_restarted_knows_no_sequences() -> None:
    """On a new connection numbers begin anew, so that the first send to it is stored."""
    world = run(RESTARTED, agreed=True, retry=False)
    assert [type(sent.outcome) for sent in world.sends] == [SendResult] * 3


@pytest.mark.parametrize("agreed", [True, False])
def test_64_in_flight_or_one(agreed: bool) -> None:
    """To a broker that agreed 64 sends leave at once; to any other one after the other."""

    async def scenario(simulated: World) -> tuple[int, list[int]]:
        runtime = simulated.host("producer")
        world = SendWorld(runtime, ProducerConfig(), agreed)

        async def play() -> None:
            for _ in range(64):
                world.send()
            await settle()
            world.let_connect(succeed=True)
            await settle(500)
            assert len(world.links[0].requests) == (64 if agreed else 1)
            await world.drain()

        await runtime.run(play())
        return world.under_way_max, world.stored

    assert simulate(scenario).value == (64 if agreed else 1, list(range(64)))


def test_a_peer_that_takes_nothing_more() -> None:
    """A send that waits for room in the write buffer fails after its time, with those behind it, and says why."""

    async def scenario(simulated: World) -> list[str]:
        runtime = simulated.host("producer")
        world = SendWorld(runtime, ProducerConfig(), agreed=True)

        async def play() -> None:
            world.send()
            await settle()
            world.let_connect(succeed=True)
            await world.drain()
            world.links[0].pause(True)
            stuck = [world.send(), world.send()]
            begin_ms = simulated.elapsed_ms
            await asyncio.gather(*[sent.task for sent in stuck])
            assert simulated.elapsed_ms - begin_ms == 3000
            world.links[0].pause(False)
            world.send()
            await world.drain()

        await runtime.run(play())
        return [str(sent.outcome) for sent in world.sends[1:3]] + [str(world.stored)]

    first, second, stored = simulate(scenario).value
    assert "accepted no more data" in first
    assert "an earlier send to its queue failed" in second
    assert stored == "[0, 3]"
