"""The port for Prometheus. Its thread asks the event loop for a copy of the values, and writes the text itself."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from lockstep.broker.metrics.families import FAMILIES, FamilyKind, Samples
from lockstep.broker.metrics.lock_counts import HANDOVER_BUCKETS_S
from lockstep.broker.metrics.scrape import scrape
from lockstep.broker.server import CannotListen
from lockstep.broker.state.broker import Broker
from lockstep.remoting.runtime import Runtime

__all__ = ["MetricsServer", "metrics_of"]

_COPY_TIMEOUT_S: Final = 10.0


def metrics_of(samples: Samples) -> Iterator[Metric]:
    """What prometheus_client writes as text."""
    for name, family in FAMILIES.items():
        if family.kind is FamilyKind.HISTOGRAM:
            yield _histogram(name, family.help, family.labels, samples)
            continue
        kind = CounterMetricFamily if family.kind is FamilyKind.COUNTER else GaugeMetricFamily
        metric = kind(name, family.help, labels=family.labels)
        for labels, value in samples.rows[name].items():
            metric.add_metric((*samples.node, *labels), value)
        yield metric


def _histogram(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> HistogramMetricFamily:
    counts, sum_s = samples.handovers
    metric, total, buckets = HistogramMetricFamily(name, text, labels=labels), 0, list[tuple[str, float]]()
    for limit, count in zip((*map(str, HANDOVER_BUCKETS_S), "+Inf"), counts, strict=True):
        total += count
        buckets.append((limit, total))
    metric.add_metric(samples.node, buckets=buckets, sum_value=sum_s)
    return metric


class _BrokerCollector(Collector):
    """Runs in the server's threads, one scrape at a time."""

    def __init__(self, broker: Broker, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._runtime = runtime
        self._loop = loop
        self._one_at_a_time = threading.Lock()

    def describe(self) -> list[Metric]:
        return []  # the broker is not asked when this is registered

    def collect(self) -> Iterator[Metric]:
        with self._one_at_a_time:
            copied: Future[Samples] = Future()
            self._loop.call_soon_threadsafe(self._start, copied)
            samples = copied.result(_COPY_TIMEOUT_S)
        return metrics_of(samples)

    def _start(self, copied: "Future[Samples]") -> None:
        self._broker.work.start(self, scrape(self._broker, self._runtime.now_ms(), copied.set_result))


class MetricsServer:
    """Serves http://HOST:PORT/metrics."""

    def __init__(self, broker: Broker, runtime: Runtime, host: str) -> None:
        self._broker = broker
        self._runtime = runtime
        self._host = host
        self._server: WSGIServer | None = None

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"{self._host}:{self._server.server_port}"

    def start(self, port: int) -> None:
        """Raises CannotListen."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_BrokerCollector(self._broker, self._runtime, asyncio.get_running_loop()))
        try:
            self._server, _ = start_http_server(port, self._host, registry)
        except OSError as error:
            raise CannotListen("metrics", "--metrics-port", self._host, port, error) from None

    def close(self) -> None:
        """Close the port. A scrape that waits for the loop gets no answer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
