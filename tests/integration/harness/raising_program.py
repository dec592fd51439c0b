"""A program without logging set-up whose own code raises everywhere: `python raising_program.py NAME_SERVER`."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, get_args

from lockstep.client import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)
from lockstep.client.consumer.dispatch.table import OrderingName

TOPIC = "orders"
PATIENT = ProducerConfig(send_timeout_ms=20_000)  # of a busy machine
ran: Counter[str] = Counter()


def raising(name: str) -> Callable[..., Any]:
    """A function of the user's that raises, under a name that its traceback shows."""
    frame = f"def {name}(*_):\n    ran[{name!r}] += 1\n    raise RuntimeError('raised by {name}')\n"
    scope: dict[str, Any] = {"ran": ran}
    exec(compile(frame, f"{name}.py", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function


class Hook:
    before = staticmethod(raising("hook_before"))
    after = staticmethod(raising("hook_after"))
    filter_message = staticmethod(raising("hook_filter"))


class TransactionListener:
    execute_local_transaction = staticmethod(raising("transaction_listener"))
    check_local_transaction = staticmethod(raising("transaction_check"))


async def has_run(name: str) -> None:
    while not ran[name]:  # noqa: ASYNC110 - plain code on threads runs too, which sets no asyncio.Event
        await asyncio.sleep(0.02)


async def listen(name_server: str, ordering: OrderingName) -> None:
    config = ConsumerConfig(
        suspend_current_queue_time_ms=50, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    name, group = f"listener_{ordering}", f"group-{ordering}"
    consumer = PushConsumer(group, name_server=name_server, config=config, ordering=ordering, listener=raising(name))
    consumer.register_consume_message_hook(Hook())
    consumer.register_filter_message_hook(Hook())
    consumer.subscribe(TOPIC)
    async with consumer:
        await has_run(name)


async def main(name_server: str) -> None:
    async with Producer("producers", name_server=name_server, config=PATIENT) as producer:
        producer.register_send_message_hook(Hook())
        await producer.send(Message(TOPIC, b"1"), sharding_key="a")
        await producer.send_async(Message(TOPIC, b"2"), raising("send_callback"))
    for ordering in get_args(OrderingName):
        await listen(name_server, ordering)
    transactions = TransactionProducer(
        "deciders", name_server=name_server, config=PATIENT, listener=TransactionListener()
    )
    async with transactions:
        await transactions.send_in_transaction(Message(TOPIC, b"3"), None)
    async with PullConsumer("pullers", name_server=name_server) as puller:
        puller.register_message_queue_listener(TOPIC, raising("queue_listener"))
        await has_run("queue_listener")
    async with PullConsumer("others", name_server=name_server, strategy=raising("strategy")) as puller:
        puller.register_topic(TOPIC)
        await has_run("strategy")
    print("done", *ran, flush=True)


asyncio.run(main(sys.argv[1]))
