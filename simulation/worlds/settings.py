"""The settings of brokers and members in a random world, in proportion to the lease of the plan."""

from typing import Any

from lockstep.client import AllocateMessageQueueStrategy, AllocateSticky, MessageQueue, SerializeType
from lockstep.client.consumer.ownership.allocation.average import allocate_averagely
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.simulation.worlds.plan import MEMBERS, SUSPEND_MS, Store, WorldPlan

__all__ = ["broker_settings", "member_settings"]

_FILES = {
    "data_dir": "store",
    "segment_bytes": 400_000,
    "queue_file_bytes": 20 * 500,
    "index_slot_count": 64,
    "index_item_count": 256,
    "max_message_bytes": 4096,
}


def _take_all(_group: str, _client: str, queues: Any, _clients: object) -> list[MessageQueue]:
    return list(queues)


def broker_settings(plan: WorldPlan, *, fenced: bool) -> dict[str, Any]:
    files = {} if plan.store is Store.MEMORY else {**_FILES, "flush_sync": plan.store is Store.SYNC}
    mode: dict[str, Any] = {}
    if fenced:
        delays = {"lock_delay_ms": plan.lock_delay_ms, "lock_delay_legacy_ms": plan.lock_delay_legacy_ms}
        mode = {"lock_mode": "fenced", **delays}
    return {
        "lock_max_live_time_ms": plan.lease_ms,
        "channel_expired_timeout_ms": 2 * plan.lease_ms,
        "scan_interval_ms": plan.lease_ms // 6,
        "idle_close_ms": 3 * plan.lease_ms,
        **files,
        **mode,
    }


def member_settings(plan: WorldPlan, name: str, *, fenced: bool) -> dict[str, Any]:
    """Arguments of `Cluster.consumer`."""
    lease_ms = plan.lease_ms
    strategy: AllocateMessageQueueStrategy = _take_all if plan.greedy[MEMBERS.index(name)] else allocate_averagely
    if fenced and plan.sticky:
        strategy = AllocateSticky()
    mode: dict[str, Any] = {"fenced": True, "on_lock_lost": "cancel" if plan.cancel else "finish"}
    if not fenced:
        mode = {"serialize_type": SerializeType.JSON} if plan.unmodified[MEMBERS.index(name)] else {}
    return {
        "commit_together": plan.together,
        "ordering": "key" if plan.by_key else "queue",
        "strategy": strategy,
        "instance_name": f"of-{name}" if plan.same_ids else "DEFAULT",
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "consume_message_batch_max_size": 1
        if plan.poison
        else plan.batch_size,  # a batch shares its dead message's end
        "consume_thread_count": plan.threads,
        "suspend_current_queue_time_ms": SUSPEND_MS,
        "max_reconsume_times": 2 if plan.poison else -1,
        "heartbeat_broker_interval_ms": lease_ms // 2,
        "idle_close_ms": 3 * lease_ms,
        "rebalance_interval_ms": lease_ms // 3,
        "lock_interval_ms": lease_ms // 3,
        "lock_first_delay_ms": min(1000, lease_ms // 12),
        "lock_max_live_time_ms": plan.trusted_ms,
        "broker_lock_max_live_time_ms": lease_ms,
        "lock_timeout_ms": plan.lock_timeout_ms,
        "lock_settle_ms": lease_ms // 3,
        "unlock_delay_ms": lease_ms // 3,
        "persist_consumer_offset_interval_ms": min(5000, lease_ms // 4),
        "persist_consumer_offset_first_ms": min(10_000, lease_ms // 3),
        **mode,
    }
