"""What the processes of the demo agree on: names, and a lock life of 10 s with client intervals to match.

RocketMQ's own numbers are 60 s for the broker's lock, 30 s until its holder stops believing in it, renewed every 20 s.
The demo divides them by six, so that a person sees a lock expire without waiting a minute for it.
"""

from lockstep.client import ConsumeFromWhere, ConsumerConfig

__all__ = ["BROKER_OPTIONS", "CONSUMER_CONFIG", "GROUP", "LOCK_LIFE_MS", "NOTICE", "NOTICE_OUTSIDE", "QUEUES", "TOPIC"]

TOPIC = "flights"
GROUP = "flight-board"
QUEUES = 8
LOCK_LIFE_MS = 10_000

BROKER_OPTIONS = (
    *("--port", "0", "--name-server-port", "0", "--topic", f"{TOPIC}:{QUEUES}"),
    *("-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}"),
)
CONSUMER_CONFIG = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    lock_max_live_time_ms=5_000,
    lock_interval_ms=3_300,
    unlock_delay_ms=3_300,
    rebalance_interval_ms=1_000,
    heartbeat_broker_interval_ms=5_000,
    persist_consumer_offset_interval_ms=1_000,
    pull_interval_ms=5,  # or two cores would be busy with a pull for every message
)
NOTICE = (
    f"A lock lives {LOCK_LIFE_MS // 1000} s here instead of RocketMQ's 60 s, and the clients' intervals match: "
    f"renewed every {CONSUMER_CONFIG.lock_interval_ms / 1000:g} s, no longer trusted by its holder after "
    f"{CONSUMER_CONFIG.lock_max_live_time_ms // 1000} s."
)
NOTICE_OUTSIDE = (
    "The brokers are not the demo's own: a lock lives there as long as they let it live (RocketMQ's default is 60 s; "
    f"less than {LOCK_LIFE_MS // 1000} s would be too short for the consumers of the demo)."
)
