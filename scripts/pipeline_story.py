"""The middle of `make pipeline`: Spark sends the flights, ordered consumers handle them while one is killed."""

import asyncio
from typing import TYPE_CHECKING, Any

from demo_processes import Children
from demo_settings import GROUP, TOPIC
from demo_story import Plan, Story
from demo_watch import Snapshot
from rich.console import Console

from lockstep.pipeline.client.blocking import Addresses
from lockstep.pipeline.jobs.lag import Watched, lag_stream, start
from lockstep.pipeline.jobs.publish import publish
from lockstep.pipeline.spark.session import use_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineStory"]

LAG_EVERY_MS = 1_000
TOPIC_COLUMNS = (
    "topic string, brokerName string, queueId int, offset long, storeTimestamp timestamp, "
    "shardingKey string, value binary"
)


class PipelineStory(Story):
    """As the demo's, with Spark as the producer. Traces, the lag and what the topic holds stay in the plan's folder."""

    def __init__(
        self, plan: Plan, console: Console, begin: float, spark: "SparkSession", events: "DataFrame", total: int
    ) -> None:
        super().__init__(plan, console, begin)
        self.lag = plan.folder / "lag"
        self.content = plan.folder / "topic"
        self.sent = 0
        self.read: dict[str, Any] = {"events": total}
        self._folder = plan.folder
        self._spark = spark
        self._events = events

    async def _run(self, children: Children) -> None:
        total = self.read["events"]
        consumers = [await self._start_consumer(children, name) for name in "ABC"]
        await self._until(
            children, lambda seen: all(seen.queues_of(child.pid) for child in consumers), "queues shared out"
        )
        query = await asyncio.to_thread(self._follow_lag)
        self._tell(
            f"{self._share(consumers)} have shared out the queues; Spark sends {total:,} events, keyed and in order"
        )
        sending = asyncio.create_task(asyncio.to_thread(self._send))

        def handled(at_least: int, seen: Snapshot) -> bool:
            if sending.done():
                sending.result()  # raises what went wrong
            return seen.handled >= at_least

        try:
            await self._until(children, lambda seen: handled(total // 2, seen), "half of the events handled")
            await self._kill(children, consumers[1])
            replacement = await self._start_consumer(children, "D")
            self._tell(f"{self._name(replacement)} is started in its place")
            await self._until(
                children, lambda seen: bool(seen.queues_of(replacement.pid)), "the replacement has queues"
            )
            self.sent = await sending
            self._tell(f"{self.sent:,} events are sent")
            await self._until(children, lambda seen: handled(total, seen), "all events handled")
        finally:
            await asyncio.to_thread(self._stop, query)
        self._tell("everything is handled; Spark reads the topic")
        await asyncio.to_thread(self._keep_content)
        await children.end(*(child for child in children if child.pid in self.names))

    def _send(self) -> int:
        use_here(self._spark)
        return publish(self._events, TOPIC, {"nameServer": self._name_server})

    def _follow_lag(self) -> "StreamingQuery":
        watched = Watched(Addresses((self._name_server,)), GROUP, (TOPIC,))
        checkpoint = str(self._folder / "lag-checkpoint")
        return start(
            lag_stream(self._spark, watched), every_ms=LAG_EVERY_MS, folder=str(self.lag), checkpoint=checkpoint
        )

    def _stop(self, query: "StreamingQuery") -> None:
        """The stream of lag, and a job that still sends when something else has failed."""
        query.stop()
        self._spark.sparkContext.cancelAllJobs()

    def _keep_content(self) -> None:
        use_here(self._spark)
        reader = self._spark.read.format("lockstep").schema(TOPIC_COLUMNS)
        topic = reader.option("nameServer", self._name_server).option("subscribe", TOPIC).load()
        topic.write.parquet(str(self.content))
