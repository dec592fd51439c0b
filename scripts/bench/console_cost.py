"""What a console costs: processor time of the broker a send, with and without an open page, in turns, median of five.

    python -m scripts.bench.console_cost [--rounds 5] [--sends 40000]

One broker, two ordered consumers and one producer. Each second round runs while `lockstep console` has a page open
(an event stream, so it asks at its full rate). Time comes from /proc/PID/schedstat. Other work on the machine moves
these figures by more than a console does; so the cost of a console to an idle broker, a second, is measured too. Exit
status 1 when a send costs more than 5 % more.
"""

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from lockstep.client import ConsumeOrderlyContext, Message, MessageExt, Producer, ProducerConfig, PushConsumer
from lockstep.protocol.codes import SerializeType
from lockstep.testing.process import BrokerProcess, ChildProcess
from scripts.bench.fence_cost import processor_ns

TOPIC, GROUP, QUEUES = "BenchConsole", "BenchGroup", 8
IN_FLIGHT: Final = 16
MORE_MAX: Final = 1.05
IDLE_S: Final = 20.0
SETTLE_S: Final = 3.0  # for the first reads of a console, and for what a round leaves behind


async def handle(_messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
    """Nothing to do with them."""


async def send(producer: Producer, sends: int) -> None:
    """Make so many sends, a few in flight."""

    async def work() -> None:
        for number in range(sends // IN_FLIGHT):
            await producer.send(Message(TOPIC, bytes(128), sharding_key=str(number % 64)))

    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])


@asynccontextmanager
async def open_page(name_server: str, folder: Path) -> AsyncIterator[None]:
    """A console, and a reader of its events."""
    command = [str(Path(sys.executable).parent / "lockstep"), "console", "--port", "0", "-n", name_server]
    with ChildProcess("console", command, folder, stdin=subprocess.DEVNULL) as console:
        said = re.compile(r"the console is at http://127\.0\.0\.1:(\d+)/")
        found = await asyncio.to_thread(console.wait_until, lambda: said.search(console.stderr()), "its address")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
        writer.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        reading = asyncio.create_task(read_on(reader))
        try:
            yield
        finally:
            reading.cancel()
            writer.close()


async def read_on(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def measure(broker: BrokerProcess, rounds: int, sends: int, folder: Path) -> dict[bool, float]:
    """Microseconds a send, without and with a console: medians."""
    name_server = broker.name_server
    times: dict[bool, list[float]] = {False: [], True: []}

    async def one(*, has_console: bool) -> float:
        await asyncio.sleep(SETTLE_S)
        begin = processor_ns(broker.pid)
        await send(producer, sends)
        microseconds = (processor_ns(broker.pid) - begin) / sends / 1000
        print(f"{'with' if has_console else 'without'} a console: {microseconds:.1f} us a send")
        return microseconds

    config = ProducerConfig(serialize_type=SerializeType.MSGPACK)
    members = [PushConsumer(GROUP, listener=handle, name_server=name_server) for _ in range(2)]
    for member in members:
        member.subscribe(TOPIC)
        await member.start()
    async with Producer("BenchProducer", name_server=name_server, config=config) as producer:
        await send(producer, sends)  # for warming up
        for _ in range(rounds):
            times[False].append(await one(has_console=False))
            async with open_page(name_server, folder):
                times[True].append(await one(has_console=True))
        idle = await idle_ms(broker)
        async with open_page(name_server, folder):
            print(f"an idle broker: {idle:.2f} ms a second, with a console {await idle_ms(broker):.2f} ms")
    for member in members:
        await member.shutdown()
    return {kind: statistics.median(found) for kind, found in times.items()}


async def idle_ms(broker: BrokerProcess) -> float:
    """Milliseconds of processor time a second while nothing is sent."""
    await asyncio.sleep(SETTLE_S)
    begin, loop = processor_ns(broker.pid), asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.sleep(IDLE_S)
    return (processor_ns(broker.pid) - begin) / 1e6 / (loop.time() - began_s)


def main() -> int:
    """Print the two medians; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sends", type=int, default=40_000, help="of each round")
    given = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        BrokerProcess(f"--topic={TOPIC}:{QUEUES}", "--log-level", "error") as broker,
    ):
        found = uvloop.run(measure(broker, given.rounds, given.sends, Path(folder)))
    ratio = found[True] / found[False]
    print(f"median: {found[False]:.1f} us without, {found[True]:.1f} us with a console: {ratio:.3f}")
    return int(ratio > MORE_MAX)


if __name__ == "__main__":
    sys.exit(main())
