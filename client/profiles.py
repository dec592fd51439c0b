"""Sets of settings by name: RocketMQ 4.9.8's own, and those of the five articles where they differ.

The articles describe several versions. What only one of them says against the others is left out: a lock renewed each
second (article 5; the others: 20 s), a busy queue's next run after 100 ms (article 4; the others: 10 ms).
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from lockstep.client.config import ConsumerConfig

__all__ = ["PROFILES", "Changed", "profiled"]

PROFILES: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({
    "rocketmq": {},
    "articles": {
        "pull_delay_when_exception_ms": 3000,  # articles 1, 3 and 4: a queue without its lock, a pull that failed
        "rebalance_interval_ms": 10_000,  # article 5
        "persist_consumer_offset_interval_ms": 10_000,  # article 3
    },
})  # fmt: skip


class Changed(NamedTuple):
    """A setting that a profile changes: its name, 4.9.8's value and the profile's."""

    name: str
    rocketmq: int
    profile: int


def profiled(config: ConsumerConfig, name: str) -> tuple[ConsumerConfig, list[Changed]]:
    """`config` with the settings of a profile, and what that changed.

    Args:
        config: what to begin with.
        name: one of PROFILES.
    Raises:
        KeyError: there is no such profile.
    """
    wanted = PROFILES[name]
    changed = [Changed(setting, getattr(config, setting), value) for setting, value in wanted.items()]
    return replace(config, **wanted), changed  # type: ignore[arg-type]  # all of them are numbers
