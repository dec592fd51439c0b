"""Sets of settings by name: those of RocketMQ 4.9.8, and those of the five articles where they differ.

The articles describe several versions. A value that one article alone has is left out: a lock is renewed each second
(article 5; the others: 20 s), a busy queue runs again after 100 ms (article 4; the others: 10 ms).
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
    """A setting that a profile changes: its name, the value of 4.9.8 and that of the profile."""

    name: str
    rocketmq: int
    profile: int


def profiled(config: ConsumerConfig, name: str) -> tuple[ConsumerConfig, list[Changed]]:
    """Return `config` with the settings of a profile, and the changes.

    Args:
        config: the settings before.
        name: one of PROFILES.
    Raises:
        KeyError: there is no such profile.
    """
    wanted = PROFILES[name]
    changed = [Changed(setting, getattr(config, setting), value) for setting, value in wanted.items()]
    return replace(config, **wanted), changed  # type: ignore[arg-type]  # all of them are numbers
