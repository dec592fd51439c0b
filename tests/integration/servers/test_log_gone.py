"""A broker whose log has no reader, or no room, serves as before."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from tests.integration.harness.processes import PATIENT_PRODUCER, until

FENCED = (sys.executable, "-m", "lockstep.broker", "--port", "0", "--name-server-port", "0", "--lock-mode", "fenced",
          "--topic", "Flights:2", "--log-level", "debug")  # fmt: skip
MESSAGES = 20


@pytest.fixture(params=["without a reader", "on a full disk"])
def broker(request: pytest.FixtureRequest) -> "Iterator[subprocess.Popen[bytes]]":
    """It logs each lock, commit and refused send."""
    with Path("/dev/full").open("wb") as full:
        stderr = full if request.param == "on a full disk" else subprocess.PIPE
        with subprocess.Popen(FENCED, stdout=subprocess.PIPE, stderr=stderr) as process:
            if process.stderr is not None:
                process.stderr.close()
            yield process
            process.kill()


async def test_fenced_consumers_go_on(broker: "subprocess.Popen[bytes]") -> None:
    """All messages are handled, and SIGTERM ends the broker well."""
    assert broker.stdout is not None
    await send_and_handle(broker.stdout.readline().decode().split("name-server=")[1].strip())
    broker.terminate()
    assert broker.wait(60) == 0


async def send_and_handle(name_server: str) -> None:
    handled: list[str] = []

    async def handle(messages: list[MessageExt], _: ConsumeOrderlyContext) -> None:
        handled.extend(message.body.decode() for message in messages)

    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer("desk", name_server=name_server, listener=handle, config=config, fenced=True)
    consumer.subscribe("Flights")
    async with Producer("p", name_server=name_server, config=PATIENT_PRODUCER) as producer, consumer:
        for number in range(MESSAGES):
            await producer.send(Message("Flights", str(number).encode(), sharding_key=str(number % 2)))
        await until(lambda: len(handled) == MESSAGES, "all handled", 60)
    assert sorted(handled, key=int) == [str(number) for number in range(MESSAGES)]
