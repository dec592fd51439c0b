"""What a consumer that pops writes into its trace, and that no fenced delivery is handled behind its end."""

import pytest

from lockstep.client import ConsumerError, SimpleConsumer, StaleDeliveryError
from lockstep.order import Cause, OrderReport, Record, check_traces
from lockstep.simulation.lab.cluster import BROKER, TRACE
from tests.client.pulls.pop_stage import Pops, on_pops


def records(pops: Pops, name: str) -> list[Record]:
    """A consumer's trace."""
    pops._traced[name] = None
    return pops.records(name)


def judged(pops: Pops, *names: str) -> OrderReport:
    """What the judge says of these consumers, and of what the broker stored."""
    return check_traces([*(records(pops, name) for name in names), pops.witnessed])


async def traced(pops: Pops, name: str = "c1") -> SimpleConsumer:
    return await pops.simple(name, in_order=True, trace=TRACE, invisible_ms=3000)


@on_pops()
async def test_a_trace_of_an_iteration(pops: Pops) -> None:
    """Each message is delivered, handled and acknowledged; its records name one delivery. The judge finds no wrong."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(2, keys=1)
    consumer = await traced(pops)

    async def work() -> None:
        async for delivery in consumer:
            await pops.world.sleep_ms(20)
            if delivery.message.body == b"1":
                await consumer.ack(delivery)
                await consumer.shutdown()

    await pops.on("c1", work())
    found = records(pops, "c1")
    assert [record["event"] for record in found] == [
        "delivered", "handled", "acked", "delivered", "handled", "acked", "closed",
    ]  # fmt: skip
    assert len({(record["offset"], record["pop_ms"]) for record in found[:3]}) == 1
    handled = found[1]
    assert (handled["key"], handled["status"], handled["ordering"]) == ("key0", "SUCCESS", "key")
    assert handled["mono_ns"] - handled["begin_mono_ns"] == 20_000_000
    assert "epoch" not in found[0]
    assert found[0]["begin_mono_ns"] <= found[0]["mono_ns"] <= handled["begin_mono_ns"]
    report = judged(pops, "c1")
    assert (report.violations, report.undecided) == ((), ())


@on_pops(fenced=True)
async def test_a_fenced_delivery_behind_its_end(pops: Pops) -> None:
    """The call of its client does not begin. Another one gets the message, and a longer time is refused."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(1)
    first, second = await traced(pops, "c1"), await traced(pops, "c2")
    (held,) = await pops.on("c1", first.receive())
    await pops.world.sleep_ms(3000)
    with pytest.raises(StaleDeliveryError), first.handling(held):
        pass
    (again,) = await pops.on("c2", second.receive())
    with second.handling(again):
        pass
    with pytest.raises(StaleDeliveryError):
        await pops.on("c1", first.change_invisible(held, 3000))
    await pops.on("c2", second.ack(again))
    assert [record["event"] for record in records(pops, "c1")] == ["delivered", "refused"]
    assert [record["event"] for record in records(pops, "c2")] == ["delivered", "handled", "acked"]
    assert [record["epoch"] for record in records(pops, "c2")[:1]] == [again.receipt.pop_ms]
    assert judged(pops, "c1", "c2").violations == ()
    await pops.on("c1", first.shutdown())
    await pops.on("c2", second.shutdown())


@on_pops(fenced=True)
async def test_the_time_of_a_call_that_waited_begins_with_its_message(pops: Pops) -> None:
    """The broker says how long the call waited. A longer time begins anew, and ends with the connection."""
    await pops.broker(queues=1)
    await pops.producer()
    consumer = await traced(pops)
    waiting = pops.world.host("c1").create_task(consumer.receive(), name="receive")
    await pops.world.sleep_ms(2500)
    await pops.send(1)
    (held,) = await waiting
    now_ns = pops.world.host("c1").monotonic_ns()
    assert held.until_ns is not None
    assert 2_800_000_000 < held.until_ns - now_ns <= 3_000_000_000
    await pops.on("c1", consumer.change_invisible(held, 9000))
    assert 8_800_000_000 < held.until_ns - now_ns <= 9_100_000_000
    await pops.stop_broker(BROKER)
    await pops.world.sleep_ms(10)
    with pytest.raises(StaleDeliveryError), consumer.handling(held):
        pass
    await pops.on("c1", consumer.shutdown())


@on_pops()
async def test_a_message_that_fails_comes_again(pops: Pops) -> None:
    """It counts as failed, and its repeat has the cause."""
    await pops.broker(queues=1)
    await pops.producer()
    await pops.send(1)
    consumer = await traced(pops)
    (first,) = await pops.on("c1", consumer.receive())
    with pytest.raises(ValueError, match="no"), consumer.handling(first):
        raise ValueError("no")
    await pops.on("c1", consumer.change_invisible(first, 0))
    (again,) = await pops.on("c1", consumer.receive())
    with consumer.handling(again):
        pass
    await pops.on("c1", consumer.ack(again))
    assert [record["event"] for record in records(pops, "c1")] == [
        "delivered", "handled", "renewed", "delivered", "handled", "acked",
    ]  # fmt: skip
    report = judged(pops, "c1")
    assert (report.violations, report.duplicates) == ((), {Cause.SUSPEND: 1})
    await pops.on("c1", consumer.shutdown())


def test_a_trace_is_of_order() -> None:
    """Without order there is nothing to judge."""
    with pytest.raises(ConsumerError, match="in_order"):
        SimpleConsumer("shop", trace="t.jsonl", name_server="n:9876")
