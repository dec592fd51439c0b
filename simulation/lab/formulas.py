"""How many requests a second brokers get from a calm group, by its size and settings.

Calm: no member joins or leaves, and each message is handled before the next one of its queue comes. A test holds the
formulas equal to the simulator's counts; docs/scale.md carries them on to sizes that it does not run.
"""

from collections.abc import Sequence
from math import ceil, exp, expm1
from typing import Final

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.protocol.allocation import share_averagely
from lockstep.simulation.lab.setup import Setup, Strategy

__all__ = ["asked_a_second", "notices_of_a_deploy", "owners_at_brokers"]

_SWEEP_MS: Final = 5000  # a broker looks so often for pulls that have waited long enough
_COMMITS_MAX: Final = 1000  # in a frame
_LEASE_MS: Final = 60_000
_RENEW_PART: Final = 3  # a lease is renewed after a third of it
_PRODUCER_MS: Final = 30_000  # from heartbeat to heartbeat


def asked_a_second(setup: Setup) -> dict[str, float]:
    """Requests of each kind (see costs.py) a second, at all brokers together, but for those of the name server.

    Messages of a queue come at random times; the producer sends one message a request, and has each broker.
    """
    config = ConsumerConfig(**setup.consumer)
    members, brokers = setup.consumers, setup.brokers
    producers = int(setup.rate > 0)
    rounds = members * 1000 / config.rebalance_interval_ms
    common = {
        # To each broker, whether the member has a queue there or not.
        "heartbeat": brokers * (members * 1000 / config.heartbeat_broker_interval_ms + producers * 1000 / _PRODUCER_MS),
        "send": float(setup.rate),
    }
    if setup.fifo:
        # Waiting calls get messages in turn, so none of them waits in vain while messages come often enough.
        wait_ms = min(config.pull_suspend_ms, config.pop_invisible_ms // 4)
        empty = max(0.0, members * brokers * 1000 / wait_ms - setup.rate)
        return {**common, "pull": setup.rate + empty, "ack": setup.rate, "members": rounds * brokers}
    # A round asks a broker at random for the topic, and one for the retry topic; the same one is asked once. STICKY
    # asks all, for the owners of their queues.
    of_round = brokers if setup.strategy is Strategy.STICKY else 2 - 1 / brokers
    pairs = owners_at_brokers(members, setup.queues, brokers)
    lease_ms = int(setup.broker.get("lock_max_live_time_ms", _LEASE_MS))
    renew_ms = lease_ms // _RENEW_PART if setup.fenced else config.lock_interval_ms
    return {
        **common,
        "lock": len(pairs) * 1000 / renew_ms,
        "members": rounds * of_round,
        "pull": _pulls(setup, config),
        # The retry topic has a queue at each broker, and its offset is stored like any other.
        "commit": _commits(pairs, config) * 1000 / config.persist_consumer_offset_interval_ms,
    }


def owners_at_brokers(members: int, queues: int, brokers: int) -> list[int]:
    """How many queues each member has at each broker where it has some; strategy AVG shares each topic out alone.

    Args:
        queues: of each broker.
    """
    names = [f"{number:06}" for number in range(brokers)]
    topic = [MessageQueue("topic", name, number) for name in names for number in range(queues)]
    retry = [MessageQueue("retry", name, 0) for name in names]
    counts: list[int] = []
    for place in range(members):
        mine = [*share_averagely(topic, place, members), *share_averagely(retry, place, members)]
        of_broker = dict[str, int]()
        for queue in mine:
            of_broker[queue.broker_name] = of_broker.get(queue.broker_name, 0) + 1
        counts += of_broker.values()
    return counts


def _pulls(setup: Setup, config: ConsumerConfig) -> float:
    """A pull ends with a message, or at the first sweep after its time; the next one then begins just after a sweep."""
    first_s, cycle_s = config.pull_suspend_ms / 1000, _waits_ms(config.pull_suspend_ms) / 1000
    queues = setup.queues * setup.brokers
    rate = setup.rate / queues
    empty = 1 / cycle_s
    if rate:
        # How likely no message comes until the first sweep, then until each later one.
        none_first = exp(-rate * first_s) * -expm1(-rate * _SWEEP_MS / 1000) / (rate * _SWEEP_MS / 1000)
        empty = rate * none_first / -expm1(-rate * cycle_s)
    return queues * (rate + empty) + setup.brokers / cycle_s


def _waits_ms(suspend_ms: int) -> int:
    """Of a pull that begins just after a sweep."""
    return (suspend_ms // _SWEEP_MS + 1) * _SWEEP_MS


def _commits(pairs: Sequence[int], config: ConsumerConfig) -> int:
    """Requests of one round of all members."""
    return sum(ceil(count / _COMMITS_MAX) for count in pairs) if config.commit_together else sum(pairs)


def notices_of_a_deploy(members: int, brokers: int) -> int:
    """What brokers send when all members leave and join again one by one.

    Each broker tells a departure to all others, and a join to the new member too.
    """
    return members * (2 * members - 1) * brokers
