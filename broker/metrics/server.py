"""The port for Prometheus. Values are copied on the event loop in steps, and the text is made on a thread."""

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import h11
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from lockstep.broker.cannot_listen import CannotListen
from lockstep.broker.core.broker import Broker
from lockstep.broker.metrics.families import FAMILIES, FamilyKind, Samples
from lockstep.broker.metrics.scrape import scrape
from lockstep.broker.ownership.counts import HANDOVER_BUCKETS_S
from lockstep.remoting.host.runtime import Listening, Runtime
from lockstep.remoting.settings import Address

__all__ = ["CONNECTIONS_MAX", "CONNECTION_LIFE_MS", "MetricsServer", "metrics_of"]

CONNECTIONS_MAX: Final = 32
# For the request, the copy and the answer: Prometheus waits no longer by default.
CONNECTION_LIFE_MS: Final = 10_000
_HEAD_BYTES_MAX: Final = 16 * 1024


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


class _Copied(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        return metrics_of(self._samples)


class _Answer(NamedTuple):
    response: h11.Response
    body: bytes


def _answer(request: h11.Request, samples: Samples) -> _Answer:
    """prometheus_client chooses the format and packs it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Copied(samples))
    path, _, query = request.target.decode("latin-1").partition("?")
    fields = {name: value.decode("latin-1") for name, value in request.headers}
    environ = {
        "REQUEST_METHOD": request.method.decode("latin-1"),
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "HTTP_ACCEPT": fields.get(b"accept", ""),
        "HTTP_ACCEPT_ENCODING": fields.get(b"accept-encoding", ""),
    }
    head: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(make_wsgi_app(registry)(environ, lambda status, headers: head.append((status, headers))))
    (status, headers), *_ = head
    code, _, reason = status.partition(" ")
    headers += [("Content-Length", str(len(body))), ("Connection", "close")]
    return _Answer(h11.Response(status_code=int(code), reason=reason, headers=headers), body)


class _Connection(asyncio.Protocol):
    """One request and its answer. A peer that says nothing, or reads nothing, is cut."""

    def __init__(self, server: "MetricsServer", runtime: Runtime) -> None:
        self._server = server
        self._runtime = runtime
        self._transport: asyncio.Transport | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._runtime.call_later_ms(CONNECTION_LIFE_MS, self.cut)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()
        self._server.ended(self)

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            # Also a head that is too long.
            self.cut()
            return
        if isinstance(event, h11.Request):
            self._task = self._runtime.create_task(self._serve(event), name="metrics")

    async def _serve(self, request: h11.Request) -> None:
        response, body = await self._server.answer(request)
        if self._transport is not None:
            self._transport.write(self._http.send(response) or b"")
            # Its answer is a head alone.
            if request.method != b"HEAD":
                self._transport.write(self._http.send(h11.Data(data=body)) or b"")
            self._transport.close()  # when all is written


class MetricsServer:
    """Serves http://HOST:PORT/metrics, one connection a request."""

    def __init__(self, broker: Broker, runtime: Runtime, host: str) -> None:
        self._broker = broker
        self._runtime = runtime
        self._host = host
        self._pool = runtime.new_worker_pool("metrics", 1)
        self.connections: dict[_Connection, None] = {}
        self._listening: Listening | None = None

    @property
    def address(self) -> str:
        assert self._listening is not None
        return str(Address(self._host, self._listening.port))

    async def start(self, port: int) -> None:
        """Raises CannotListen."""

        def new_connection() -> _Connection:
            return _Connection(self, self._runtime)

        try:
            self._listening = await self._runtime.create_server(new_connection, self._host, port)
        except OSError as error:
            raise CannotListen("metrics", "--metrics-port", self._host, port, error) from None

    def close(self) -> None:
        """Close the port and its connections at once."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.cut()
        self._pool.close()

    def opened(self, connection: _Connection) -> None:
        """Above the bound the oldest connection goes: it has had the most time."""
        self.connections[connection] = None
        if len(self.connections) > CONNECTIONS_MAX:
            oldest = next(iter(self.connections))
            # Its end is told later: the next one of this turn cuts another.
            del self.connections[oldest]
            oldest.cut()

    def ended(self, connection: _Connection) -> None:
        self.connections.pop(connection, None)

    async def answer(self, request: h11.Request) -> _Answer:
        """Copy the values, and make the text."""
        copied: asyncio.Future[Samples] = asyncio.get_running_loop().create_future()

        def done(samples: Samples) -> None:
            if not copied.done():  # the peer is gone
                copied.set_result(samples)

        self._broker.work.start(self, scrape(self._broker, self._runtime.now_ms(), done))
        samples = await copied
        return await self._pool.submit(lambda: _answer(request, samples))
