"""When the pull loop waits: enough messages are cached, or the consumer is suspended (wire.md 12.6)."""

from lockstep.protocol.command import RemotingCommand
from tests.client.messages import messages_at
from tests.client.pulls.pulling import PULL, found, in_turn, pulling
from tests.client.stage import TOPIC, Stage, on_stage, queue_at


@on_stage
async def test_flow_control_by_count(stage: Stage) -> None:
    """Over the threshold nothing is pulled until enough is handled; the loop wakes for that or after 50 ms."""
    it = await pulling(stage, pull_threshold_for_queue=3)
    it.broker.on[PULL] = in_turn(found(5, 6, 7, 8), found(9))
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.sleep_ms(1000)
    assert len(it.pulls) == 1
    for _ in range(4):
        it.queue.cache.take_messages(1)
        it.queue.cache.commit()
    await stage.world.sleep_ms(10)
    assert len(it.pulls) == 3
    running.cancel()


@on_stage
async def test_flow_control_by_bytes(stage: Stage) -> None:
    """Few and large messages hold the loop back as well."""
    it = await pulling(stage, pull_threshold_bytes_for_queue=1)
    it.broker.on[PULL] = in_turn(found(10, 11))
    await it.run(1000)
    assert len(it.pulls) == 1


@on_stage
async def test_flow_control_looks_again_after_50_ms(stage: Stage) -> None:
    """Whatever makes room: here a rebalance that leaves this queue a larger share of its topic's limit."""
    it = await pulling(stage, pull_threshold_for_topic=2)
    it.flow.share_out(TOPIC, [queue_at(0), queue_at(1)])
    it.broker.on[PULL] = in_turn(found(5, 6), found(7))
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.until(lambda: it.queue.cache.message_count == 2, poll_ms=1)
    began_ms = stage.world.elapsed_ms
    stage.world.loop.call_later(0.12, it.flow.share_out, TOPIC, [queue_at(0)])
    await stage.world.until(lambda: len(it.pulls) == 2, poll_ms=1)
    assert 150 <= stage.world.elapsed_ms - began_ms <= 155
    assert stage.events("warning") == ["pull_throttled"]
    running.cancel()


@on_stage
async def test_flow_control_by_span(stage: Stage) -> None:
    """A message far behind the others holds the loop back until it is done."""
    it = await pulling(stage, checks_span=True)
    it.broker.on[PULL] = in_turn(found(5, 2006))
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.sleep_ms(1000)
    assert len(it.pulls) == 1
    it.queue.cache.remove_messages(messages_at(5))
    await stage.world.sleep_ms(10)
    assert len(it.pulls) == 2
    running.cancel()


@on_stage
async def test_a_suspended_loop_looks_again_after_1_000_ms(stage: Stage) -> None:
    """The result of the running pull is taken; then no pull is made until resume."""
    it = await pulling(stage)
    held: list[RemotingCommand] = []
    it.broker.on[PULL] = lambda command: held.append(command)
    running = stage.client.create_task(it.loop.run(it.queue), name="pull")
    await stage.world.until(lambda: held)
    it.member.suspend()
    reply = found(5)(held[0])
    assert reply is not None
    it.broker.endpoints[-1].reply(reply)
    await stage.world.until(lambda: it.queue.cache.message_count == 1)
    began_ms = stage.world.elapsed_ms
    await stage.world.sleep_ms(4_500)
    assert len(it.pulls) == 1
    it.member.resume()
    await stage.world.until(lambda: len(it.pulls) == 2)
    assert 5_000 <= stage.world.elapsed_ms - began_ms <= 5_005
    running.cancel()


@on_stage
async def test_what_lies_behind_the_last_pull(stage: Stage) -> None:
    """The broker's end of the queue at that moment, less the offset of the last message that came."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(5), found(6, 900))
    await it.run(100)
    assert it.queue.cache.message_accumulation == 100


@on_stage
async def test_a_pull_with_nothing_behind_it_leaves_the_accumulation(stage: Stage) -> None:
    """RocketMQ takes a difference above 0 alone: at the end of the queue the last figure stays."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(found(900), found(1000))
    await it.run(100)
    assert it.queue.cache.message_accumulation == 100
