"""SendTimes: how long attempts to send take, for metrics. It is a hook of the producer."""

from typing import Final

from lockstep.client.histogram import Histogram
from lockstep.client.hooks import SendMessageContext
from lockstep.client.metric_families import TOPICS_MAX, Rows
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.host.runtime import Runtime

__all__ = ["OTHER_TOPICS", "SendTimes"]

OTHER_TOPICS: Final = "(other)"
_SEND_MS: Final = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0)  # those of RocketMQ 5's clients
_BEGAN: Final = "lockstep.metrics.began_ns"


class SendTimes:
    """A SendMessageHook. A one-way send counts when it has left.

    Args:
        client: its group and client id.
    """

    def __init__(self, runtime: Runtime, tenant: NamesOfTenant, client: tuple[str, str]) -> None:
        self._runtime = runtime
        self._tenant = tenant
        self._client = client
        self._times: dict[tuple[str, str], Histogram] = {}

    def before(self, context: SendMessageContext) -> None:
        context.data[_BEGAN] = self._runtime.monotonic_ns()

    def after(self, context: SendMessageContext) -> None:
        took_ms = (self._runtime.monotonic_ns() - context.data[_BEGAN]) / 1e6
        topic, status = self._tenant.wrap(context.queue.topic), "success" if context.error is None else "failure"
        self._histogram(topic, status).count(took_ms)

    def _histogram(self, topic: str, status: str) -> Histogram:
        found = self._times.get((topic, status))
        if found is None:
            key = (topic, status) if len(self._times) < 2 * TOPICS_MAX else (OTHER_TOPICS, status)
            found = self._times.setdefault(key, Histogram(_SEND_MS))
        return found

    def rows(self) -> Rows:
        """Any thread may call it."""
        for (topic, status), histogram in self._times.copy().items():
            yield "rocketmq_send_cost_time", (topic, *self._client, status), histogram
