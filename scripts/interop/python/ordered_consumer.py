"""Our own ordered push consumer as a process: --name-server, --topic, --group, --trace, --work-ms, --property A=B.

Says {"event": "ready", "clientId": ...}; what it does is in its trace. Ends in order by SIGTERM or the end of stdin.
"""

import argparse
import asyncio
import json
import os
import signal
import sys

import uvloop

from lockstep.client import ConsumeFromWhere, ConsumeOrderlyContext, ConsumerConfig, MessageExt, PushConsumer
from lockstep.remoting.settings import with_properties


async def consume(given: argparse.Namespace) -> None:
    """Handle messages until told to stop."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)

    def heard() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin)
            stopped.set()

    async def work(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        if given.work_ms:
            await asyncio.sleep(given.work_ms / 1000)

    loop.add_reader(sys.stdin, heard)
    properties = dict(pair.split("=", 1) for pair in given.property)
    config = with_properties(
        ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, pull_interval_ms=2), properties
    )
    consumer = PushConsumer(given.group, name_server=given.name_server, config=config, listener=work, trace=given.trace)
    consumer.subscribe(given.topic)
    async with consumer:
        print(json.dumps({"event": "ready", "clientId": consumer.client_id}), flush=True)
        await stopped.wait()


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--name-server", "--topic", "--group", "--trace"):
        parser.add_argument(name, required=True)
    parser.add_argument("--work-ms", type=float, default=0.0)
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE")
    uvloop.run(consume(parser.parse_args()))


if __name__ == "__main__":
    main()
