"""The middle of `make pipeline`: Spark sends the flights, ordered consumers handle them while one is killed."""

import asyncio
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lockstep.client.blocking import Addresses
from lockstep.pipeline.jobs.lag import Watched, lag_stream, start
from lockstep.pipeline.jobs.publish import publish
from lockstep.pipeline.spark.session import use_here
from scripts.demo.consumer import GROUP, TOPIC
from scripts.demo.scenario import Children, Plan, Scenario
from scripts.demo.watch import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PipelineScenario"]

LAG_EVERY_MS = 1_000
SPARK_TIMEOUT_S = 600.0  # to plan a job, start its workers and send the first messages
TOPIC_COLUMNS = (
    "topic string, brokerName string, queueId int, offset long, storeTimestamp timestamp, "
    "shardingKey string, value binary"
)


class PipelineScenario(Scenario):
    """The demo's scenario with Spark as the producer. Traces, lag and topic content stay in the plan's folder."""

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
        self._sending: asyncio.Task[int] | None = None

    async def _run(self, children: Children) -> None:
        total = self.read["events"]
        consumers = await self._start_consumers(children)
        query = await asyncio.to_thread(self._follow_lag)
        self._show(
            f"{self._share(consumers)} have shared out the queues; Spark sends {total:,} events, keyed and in order"
        )
        sending = self._sending = asyncio.create_task(asyncio.to_thread(self._send))

        def handled(at_least: int, seen: Snapshot) -> bool:
            if sending.done():
                sending.result()  # raises the error of the send
            return seen.handled >= at_least

        try:
            await self._until(children, lambda seen: handled(total // 2, seen), "half of the events handled")
            await self._replace(children, consumers)
            self.sent = await sending
            self._show(f"{self.sent:,} events are sent")
            await self._until(children, lambda seen: handled(total, seen), "all events handled")
        finally:
            await asyncio.to_thread(self._stop, query)
        self._show("everything is handled; Spark reads the topic")
        await asyncio.to_thread(self._keep_content)
        self._end_consumers(children)

    def _stall_timeout_s(self) -> float:
        """While Spark sends, nothing may be seen of it for long on a slow machine."""
        if self._sending is not None and not self._sending.done():
            return SPARK_TIMEOUT_S
        return super()._stall_timeout_s()

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
        """Stop the stream of lag, and a job that may still send after an error."""
        query.stop()
        self._spark.sparkContext.cancelAllJobs()

    def _keep_content(self) -> None:
        use_here(self._spark)
        reader = self._spark.read.format("lockstep").schema(TOPIC_COLUMNS)
        topic = reader.option("nameServer", self._name_server).option("subscribe", TOPIC).load()
        topic.write.parquet(str(self.content))
