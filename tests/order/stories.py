"""Traces by hand: a `Story` writes the records that clients would, on one clock that the test moves."""

from typing import Any

from lockstep.order import OrderReport, check_traces

SUCCESS = "SUCCESS"
SUSPEND = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
EPOCH_MS = 1_700_000_000_000

Records = list[dict[str, Any]]


class Story:
    """What several processes of one machine write about queue 0 of one topic. Time moves 1 ms with every record."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.traces: dict[str, list[dict[str, Any]]] = {}
        self.hosts: dict[str, str] = {}

    def record(self, client: str, event: str, **fields: Any) -> dict[str, Any]:
        """Write one record of a client; returns it, so that a test may bend it."""
        self.now_ms += 1
        place = {"topic": "orders", "broker": "b", "queue_id": 0, "group": "g"}
        record = {
            "event": event,
            "wall_ms": EPOCH_MS + self.now_ms,
            "mono_ns": self.now_ms * 1_000_000,
            "host": self.hosts.get(client, "machine"),
            "client_id": client,
            **place,
            **fields,
        }
        self.traces.setdefault(client, []).append(record)
        return record

    def own(self, client: str, period: int, offset: int) -> None:
        """A lock is granted and the queue positioned."""
        self.record(client, "acquired", period=period)
        self.record(client, "positioned", period=period, offset=offset)

    def handle(
        self,
        client: str,
        period: int,
        *offsets: int,
        status: str = SUCCESS,
        keys: str = "K",
        batch: bool = False,
        ordering: str | None = None,
    ) -> list[dict[str, Any]]:
        """Listener calls of 5 ms: one for each offset, or one for all. `keys` go round."""
        records = []
        begin_ms = self.now_ms
        for place, offset in enumerate(offsets):
            if not batch:
                begin_ms = self.now_ms
            if not batch or place == 0:
                self.now_ms += 5
            record = self.record(
                client,
                "handled",
                period=period,
                offset=offset,
                key=keys[offset % len(keys)],
                msg_id=f"id-{offset}",
                begin_wall_ms=EPOCH_MS + begin_ms,
                begin_mono_ns=begin_ms * 1_000_000,
                status=status,
                reconsume_times=0,
                **({"ordering": ordering} if ordering is not None else {}),
            )
            records.append(record)
        return records

    def commit(self, client: str, period: int, offset: int) -> dict[str, Any]:
        """A commit is sent, and its writer lives on for long enough to count it as stored."""
        record = self.record(client, "committed", period=period, offset=offset)
        self.now_ms += 2000
        self.record(client, "breath")
        return record

    def sent(self, *offsets: int) -> None:
        """A producer had answers for these offsets."""
        for offset in offsets:
            self.record("producer", "sent", offset=offset, key="K", msg_id=f"id-{offset}", group="p")

    def report(self) -> OrderReport:
        """What the checker says about all of it."""
        return check_traces(list(self.traces.values()))


def owned() -> Story:
    """Client a was granted the queue, and is at 0."""
    story = Story()
    story.own("a", 1, 0)
    return story


def kinds(report: OrderReport) -> list[str]:
    """The kinds of violations found, sorted."""
    return sorted(report.violation_counts)


def handled(story: Story) -> Records:
    """All handled records in the order of time; the records themselves, so that bending one bends the story."""
    records = [record for trace in story.traces.values() for record in trace if record["event"] == "handled"]
    return sorted(records, key=lambda record: record["mono_ns"])


def first_handlings(story: Story) -> Records:
    """The first handled record of each offset, in order."""
    firsts: dict[int, dict[str, Any]] = {}
    for record in handled(story):
        firsts.setdefault(record["offset"], record)
    return list(firsts.values())
