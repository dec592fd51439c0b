"""What consumers and producers tell Prometheus, through a registry that their user gives (docs/metrics.md).

Clients import this only when they get a registry: it needs the extra `metrics`.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep.client.histogram import Histogram
from lockstep.client.metric_families import FAMILIES, FamilyKind, Rows

__all__ = ["attach"]


class _Clients(Collector):
    """All clients of one registry: a family is written once, whatever their number."""

    def __init__(self) -> None:
        self.registered = False
        self._clients: dict[Callable[[], Rows], None] = {}

    def describe(self) -> list[Metric]:
        return []

    def add(self, client: Callable[[], Rows]) -> None:
        self._clients[client] = None

    def remove(self, client: Callable[[], Rows]) -> None:
        self._clients.pop(client, None)

    def collect(self) -> Iterator[Metric]:
        families = {name: _family(name) for name in FAMILIES}
        for client in list(self._clients):
            for name, labels, value in client():
                _add(families[name], labels, value)
        yield from families.values()


def _family(name: str) -> Metric:
    kind, labels, text = FAMILIES[name]
    if kind is FamilyKind.HISTOGRAM:
        return HistogramMetricFamily(name, text, labels=labels)
    return (CounterMetricFamily if kind is FamilyKind.COUNTER else GaugeMetricFamily)(name, text, labels=labels)


def _add(family: Metric, labels: tuple[str, ...], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        assert isinstance(family, HistogramMetricFamily)
        limits = (*map(str, value.limits), "+Inf")
        buckets = list(zip(limits, accumulate(value.counts), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=value.sum)
    else:
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)


_known: "WeakKeyDictionary[CollectorRegistry, _Clients]" = WeakKeyDictionary()


def attach(registry: CollectorRegistry, client: Callable[[], Rows]) -> Callable[[], None]:
    """Let `registry` show a client, and return the function that ends it. Any thread may read the registry."""
    clients = _known.setdefault(registry, _Clients())
    if not clients.registered:
        clients.registered = True
        registry.register(clients)
    clients.add(client)
    return lambda: clients.remove(client)
