"""What a run cost: how long queues stood still, what came late and twice, and what brokers were asked.

Processor time and memory are reckoned, as virtual time has neither: each request takes a broker what one takes that
comes alone (docs/benchmarks.md), and a member has a size, measured with 100 of them on 400 queues.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from lockstep.order import Cause
from lockstep.protocol.codes import RequestCode
from lockstep.remoting.percentiles import percentile
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.durations import duration_words
from lockstep.simulation.lab.report import owner_changes
from lockstep.simulation.lab.standstill import Flow

__all__ = ["REQUEST_US", "Asked", "Costs", "cost_lines", "costs_of"]

REQUEST_US: Final = 40  # of a core: sends and lock calls with one in flight
_BROKER_BYTES: Final = 40_000_000  # after its start
_MEMBER_BYTES: Final = 36_000  # its connection, and the locks and the waiting pulls of four queues
_KINDS: Final[Mapping[str, tuple[RequestCode, ...]]] = {
    "lock": (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
    "pull": (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE),
    "ack": (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.COMMIT_TOGETHER),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "members": (RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_ASSIGNMENT),
    "send": (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_TOGETHER),
}
_KIND_OF: Final = {int(code): kind for kind, codes in _KINDS.items() for code in codes}


class Asked(NamedTuple):
    """Requests of a kind that all brokers got.

    Args:
        busiest: in the second with most of them.
    """

    total: int
    a_second: float
    busiest: int


@dataclass(frozen=True)
class Costs:
    """Args:
    still_ms: how long each queue that had a message stood still at longest (see standstill.py), the longest last.
    late: messages that began over a second later than in a calm run (see standstill.py).
    duplicates: messages that were handled more than once; an attempt that failed does not count.
    owner_changes: of all queues; without locks, how often messages went to another member.
    asked: by kind of request: lock, pull, ack, commit, heartbeat, members, send, other.
    processor: of a core, of the broker with most requests, by reckoning.
    memory_mb: of that broker, without messages, by reckoning.
    """

    queues: int
    still_ms: tuple[float, ...]
    still_queue: str
    messages: int
    late: int
    duplicates: int
    owner_changes: int
    asked: dict[str, Asked]
    processor: float
    memory_mb: float

    @property
    def still_p50_ms(self) -> float:
        return percentile(self.still_ms, 50)

    @property
    def still_p99_ms(self) -> float:
        return percentile(self.still_ms, 99)

    @property
    def still_longest_ms(self) -> float:
        return percentile(self.still_ms, 100)

    def row(self) -> dict[str, Any]:
        """For JSON."""
        still = {"p50": self.still_p50_ms, "p99": self.still_p99_ms, "longest": self.still_longest_ms}
        asked = {kind: {**one._asdict(), "a_second": round(one.a_second, 3)} for kind, one in self.asked.items()}
        numbers = {key: value for key, value in asdict(self).items() if key not in ("still_ms", "asked")}
        return {"still_ms": {key: round(ms, 3) for key, ms in still.items()}, **numbers, "asked": asked}


def costs_of(cluster: Cluster) -> Costs:
    """Of a run that has ended, since `measured_from_ms` of the cluster; duplicates of the whole run."""
    report, flow = cluster.judge(), cluster.flow()
    rests = sorted(flow.longest.values(), key=lambda rest: rest.duration_ms)
    end_ms = cluster.world.elapsed_ms if cluster.ended_ms is None else cluster.ended_ms
    first, last = cluster.measured_from_ms // 1000, min(end_ms, cluster.setup.life_ms) // 1000  # while messages come
    tables = [
        Counter({key: count for key, count in table.items() if first <= key[0] < last})
        for table in cluster.requests.values()
    ]
    seconds = max(last - first, 1)
    busiest_broker = max((table.total() for table in tables), default=0)
    members = len(cluster.consumers)
    return Costs(
        queues=_queues(cluster, flow),
        still_ms=tuple(rest.duration_ms for rest in rests),
        still_queue=str(rests[-1].queue) if rests else "",
        messages=flow.messages,
        late=flow.late,
        duplicates=sum(report.duplicates.values()) - report.duplicates.get(Cause.SUSPEND, 0),
        owner_changes=owner_changes(cluster, report),
        asked=_asked(tables, seconds),
        processor=round(busiest_broker * REQUEST_US / 1e6 / seconds, 6),
        memory_mb=round((_BROKER_BYTES + members * _MEMBER_BYTES) / 1e6, 1),
    )


def _queues(cluster: Cluster, flow: Flow) -> int:
    """All that there are: some may have had no message."""
    return max(cluster.queue_count, len(flow.longest))


def _asked(tables: Sequence[Counter[tuple[int, int]]], seconds: int) -> dict[str, Asked]:
    by_second: dict[str, Counter[int]] = {kind: Counter() for kind in (*_KINDS, "other")}
    for table in tables:
        for (second, code), count in table.items():
            by_second[_KIND_OF.get(code, "other")][second] += count
    return {
        kind: Asked(counts.total(), counts.total() / seconds, max(counts.values(), default=0))
        for kind, counts in by_second.items()
    }


def cost_lines(costs: Costs) -> list[str]:
    """For people."""
    still = f"at longest {duration_words(costs.still_longest_ms)}"
    if costs.still_longest_ms:
        still += f" ({costs.still_queue}); half of the queues at most {duration_words(costs.still_p50_ms)}, "
        still += f"99 % at most {duration_words(costs.still_p99_ms)}"
    asked = ", ".join(
        f"{one.a_second:,.1f} {kind} (busiest {one.busiest:,})" for kind, one in costs.asked.items() if one.total
    )
    changes = costs.owner_changes / max(costs.queues, 1)
    core = f"{costs.processor * 100:.1f} % of a core"
    return [
        "What it cost",
        f"  Queues stood still: {still}.",
        f"  Late messages:      {costs.late:,} of {costs.messages:,} began over a second later than in a calm run.",
        f"  Handled again:      {costs.duplicates:,}.",
        f"  Changes of owner:   {costs.owner_changes:,}, {changes:.1f} a queue.",
        f"  Requests a second:  {asked}.",
        f"  Of a broker:        about {core}, and {costs.memory_mb:,.0f} MB beside messages.",
    ]
