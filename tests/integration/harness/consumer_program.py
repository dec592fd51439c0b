"""A consumer process of the tests: `python -m tests.integration.harness.consumer_program SPEC`, SPEC a JSON object.

    name_server, group, topic, trace   as PushConsumer takes them
    config                             fields of ConsumerConfig; serialize_type by its name
    listener                           a name of LISTENERS, "quick" by default
    work_ms                            how long the listener works on a message
    hold_after                         "held": after so many messages, wait for SIGUSR1
    fail_every                         "raising" and "nonsense": the first attempt at each so-many-th message fails
    fenced, pop, ordering              as PushConsumer takes them
    effects                            "guarded" and "guarded_thread": the database of effects.py

"guarded" and "guarded_thread" wait like "held", and say `holding QUEUE_ID` first; each message is an effect.

Says `started CLIENT_ID` on stdout. Exit status 0 after SIGTERM, 130 after SIGINT, both with everything handed back.
"""

import asyncio
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import uvloop

from lockstep.client import (
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    MessageExt,
    OrderlyListener,
    PushConsumer,
    SerializeType,
)
from tests.integration.harness.effects import Effects

Spec = dict[str, Any]
Messages = list[MessageExt]


def quick(spec: Spec) -> OrderlyListener:
    work_s = spec.get("work_ms", 0) / 1000

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        if work_s:
            await asyncio.sleep(work_s)

    return listen


def blocking(spec: Spec) -> OrderlyListener:
    """A plain function, which runs on a thread."""
    work_s = spec.get("work_ms", 0) / 1000

    def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        work_until = time.monotonic() + work_s
        while time.monotonic() < work_until:
            pass

    return listen


def held(spec: Spec) -> OrderlyListener:
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    left = spec["hold_after"]

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        nonlocal left
        left -= len(messages)
        if left < 0:
            await go_on.wait()

    return listen


def guarded(spec: Spec) -> OrderlyListener:
    """Its effect is written although the call is cancelled: the fence, not the cancellation, must keep it out."""
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    effects, waits = Effects(spec["effects"]), _Waits(spec)

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        try:
            if waits.now(messages):
                await go_on.wait()
        finally:
            effects.write(messages, context.lock_epoch)

    return listen


def guarded_thread(spec: Spec) -> OrderlyListener:
    go_on = threading.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    effects, waits = Effects(spec["effects"]), _Waits(spec)

    def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        if waits.now(messages):
            go_on.wait()
        effects.write(messages, context.lock_epoch)

    return listen


class _Waits:
    """Whether a call is the first one that waits."""

    def __init__(self, spec: Spec) -> None:
        self._left: int = spec.get("hold_after", sys.maxsize)

    def now(self, messages: Messages) -> bool:
        before, self._left = self._left, self._left - len(messages)
        waits = before >= 0 > self._left
        if waits:
            print("holding", messages[0].queue_id, flush=True)
        return waits


def raising(spec: Spec) -> OrderlyListener:
    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        if _fails(messages, spec):
            raise RuntimeError("the database is away")

    return listen


def nonsense(spec: Spec) -> OrderlyListener:
    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        return "done" if _fails(messages, spec) else None  # type: ignore[return-value]

    return listen


def _fails(messages: Messages, spec: Spec) -> bool:
    message = messages[0]
    return message.queue_offset % spec["fail_every"] == 0 and message.reconsume_times == 0


LISTENERS: dict[str, Callable[[Spec], OrderlyListener]] = {
    "quick": quick,
    "blocking": blocking,
    "held": held,
    "guarded": guarded,
    "guarded_thread": guarded_thread,
    "raising": raising,
    "nonsense": nonsense,
}


def stop(stopped: "asyncio.Future[int]", number: signal.Signals) -> None:
    if not stopped.done():
        stopped.set_result(130 if number == signal.SIGINT else 0)


async def consume(spec: Spec) -> int:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, stopped, number)
    config = dict(spec.get("config", {}))
    if "serialize_type" in config:
        config["serialize_type"] = SerializeType[config["serialize_type"]]
    consumer = PushConsumer(
        spec["group"],
        name_server=spec["name_server"],
        config=ConsumerConfig(**config),
        listener=LISTENERS[spec.get("listener", "quick")](spec),
        trace=spec["trace"],
        fenced=spec.get("fenced"),
        pop=spec.get("pop", False),
        ordering=spec.get("ordering", "queue"),
        on_acquired=Effects(spec["effects"]).begin_period if "effects" in spec else None,
    )
    consumer.subscribe(spec["topic"])
    async with consumer:
        print("started", consumer.client_id, flush=True)
        return await stopped


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(consume(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
