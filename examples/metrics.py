"""Metrics of a consumer for Prometheus, with the extra `metrics`. Feed it: seq 9 | lockstep produce orders --text"""

import asyncio

from prometheus_client import CollectorRegistry, start_http_server

from lockstep.client import ConsumeOrderlyContext, MessageExt, PushConsumer


async def work(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
    await asyncio.sleep(0.001)


async def main() -> None:
    registry = CollectorRegistry()
    server, _ = start_http_server(0, "127.0.0.1", registry)
    consumer = PushConsumer("example-measured", listener=work, metrics=registry)
    consumer.subscribe("orders")
    async with consumer:
        print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
        await asyncio.sleep(60)


asyncio.run(main())
