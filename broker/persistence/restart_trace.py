"""Records of offsets after a crash, for the order checker (docs/order.md 1).

A killed broker loses up to `flushConsumerOffsetInterval` of commits, and cannot know which. So the next start writes
the present offset of each group as a `reset` record: messages consumed again from there on are no violation.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from lockstep.broker.catalog.catalog import Catalog
from lockstep.broker.config import BrokerConfig
from lockstep.broker.persistence.durable_store import DurableStore
from lockstep.order.traces.format import VERSION
from lockstep.protocol.bodies.subscription_group import BUILT_IN_GROUPS
from lockstep.protocol.names import RESERVED_TOPICS, is_journal, is_retry_topic, retry_topic
from lockstep.remoting.host.runtime import Runtime
from lockstep.store.errors import StoreUnusable

__all__ = ["leave_resets"]

_RECORDS_MAX: Final = 100_000
_WRITTEN_AT_ONCE: Final = 1000


def leave_resets(config: BrokerConfig, catalog: Catalog, kept: DurableStore, runtime: Runtime) -> None:
    """Add the records to the file of `--trace`, if the broker's last run ended with a crash.

    They have the time of this start, on the clock of this machine and boot.

    Raises:
        StoreUnusable: The file cannot be written to; the folder is released then.
    """
    path = config.trace
    if not path:
        return
    queues = [place for place in kept.store.queues if place[0] not in RESERVED_TOPICS and not is_journal(place[0])]
    groups = [group.group_name for group in catalog.groups.groups if group.group_name not in BUILT_IN_GROUPS]
    machine, boot = runtime.clock_id()
    head = {"event": "reset", "wall_ms": runtime.now_ms(), "mono_ns": runtime.monotonic_ns(), "v": VERSION}
    head |= {"machine": machine, "boot": boot, "broker": config.broker_name}
    places = _places(catalog.offsets.all(), queues, groups) if kept.data_dir.crashed else iter(())
    try:
        file = runtime.storage.open_append(path)
        try:
            for _ in range(0, _RECORDS_MAX, _WRITTEN_AT_ONCE):
                records = [{**head, **place} for place in islice(places, _WRITTEN_AT_ONCE)]
                file.write("".join([json.dumps(record) + "\n" for record in records]).encode())
        finally:
            file.close()
    except OSError as error:
        kept.abandon()
        raise StoreUnusable(f"--trace {path}: {error.strerror or error}") from None
    if next(places, None) is not None:
        kept.store.events.warning("reset_records_left_out", file=path, records_max=_RECORDS_MAX)


def _places(
    offsets: dict[tuple[str, str], dict[int, int]], queues: Iterable[tuple[str, int]], groups: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """The offset of each group in each queue; 0 for a queue without one, since any commit may be lost."""
    queue_ids: dict[str, set[int]] = {}
    for topic, queue_id in queues:
        queue_ids.setdefault(topic, set()).add(queue_id)
    for (topic, group), known in offsets.items():
        for queue_id in sorted({*known, *queue_ids.get(topic, ())}):
            yield {"group": group, "topic": topic, "queue_id": queue_id, "offset": max(0, known.get(queue_id, 0))}
    for group in groups:
        for topic, ids in queue_ids.items():
            others = is_retry_topic(topic) and topic != retry_topic(group)
            if (topic, group) not in offsets and not others:
                for queue_id in sorted(ids):
                    yield {"group": group, "topic": topic, "queue_id": queue_id, "offset": 0}
