"""Which tests a run takes: `--tier`.

`quick`, for `make test`: the product in a few minutes, each test once, and not what takes long by nature.
`rest`: what quick left out, so that CI runs both and nothing twice.
`all`, without the option: each test once. `nightly`: everything, each test in all its variants.

**Variants.** A test that can run under several event loops or header encodings runs under one, drawn from its name, so
that both are met all over the suite and a test keeps its own from run to run. The others are made at collection only
by `nightly`, and by `rest` when it is their turn.

**Turns.** What is repeated takes turns: the other variants, and tests marked `rotating`. Each has one of TURNS turns,
drawn from its name, and `LOCKSTEP_TURN` in the environment says whose it is: a number that grows by one from run to
run. `rest` without it counts the commits. Who has not the turn is left out, and the summary of the run says so.
"""

import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

import pytest

__all__ = ["COLLECTED", "LEFT_OUT", "TURNS", "TURN_VARIABLE", "Tier", "begin_turn", "is_due", "select", "variants"]

TURNS = 5  # each is run at least in every fifth run
TURN_VARIABLE = "LOCKSTEP_TURN"
LONG = ("spark", "determinism", "realtime", "long", "rotating")  # what quick leaves out, unless marked `smoke`

COLLECTED = pytest.StashKey[list[pytest.Item]]()  # in pytest's config: all that was collected, whatever the tier
LEFT_OUT = pytest.StashKey[Counter[str]]()  # in pytest's config: whose turn it is not, by file
_AGAIN = pytest.StashKey[set[str]]()  # tests of quick that `rest` collected in their other variants


class Tier(Enum):
    QUICK = "quick"
    REST = "rest"
    ALL = "all"
    NIGHTLY = "nightly"

    @classmethod
    def of(cls, config: pytest.Config) -> "Tier":
        return cls(config.getoption("--tier"))


def begin_turn(config: pytest.Config) -> None:
    """Decide, before workers start, whose turn it is: they and the tests read it from the environment."""
    config.stash[LEFT_OUT] = Counter()
    config.stash[_AGAIN] = set()
    tier = Tier.of(config)
    if tier is Tier.NIGHTLY:
        os.environ.pop(TURN_VARIABLE, None)
    elif tier is Tier.REST and TURN_VARIABLE not in os.environ:
        count = ["git", "rev-list", "--count", "HEAD"]
        commits = subprocess.run(count, cwd=config.rootpath, capture_output=True, text=True, check=False).stdout
        if commits.strip().isdigit():  # a tree without git runs everything
            os.environ[TURN_VARIABLE] = commits.strip()


def is_due(key: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is the turn of `key`, the name of what is repeated; always, when nobody takes turns."""
    turn = environ.get(TURN_VARIABLE)
    return turn is None or zlib.crc32(key.encode()) % TURNS == int(turn) % TURNS


def variants(config: pytest.Config, test: pytest.Item, names: Sequence[str]) -> list[str]:
    """The variants in which a test is collected.

    Args:
        test: The function, before it has parameters.
        names: All of its event loops, or all of its encodings.
    """
    tier, own = Tier.of(config), names[zlib.crc32(test.nodeid.encode()) % len(names)]
    if tier is Tier.NIGHTLY:
        return list(names)
    if tier is Tier.QUICK or len(names) == 1 or TURN_VARIABLE not in os.environ:
        return [own]
    others = [name for name in names if name != own]
    if not is_due(test.nodeid):
        config.stash[LEFT_OUT][_file(test)] += len(others)
        return [own]
    if tier is Tier.REST and not _is_long(test):
        config.stash[_AGAIN].add(test.nodeid)
        return others
    return [own, *others]


def select(config: pytest.Config, items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items that the tier of this run takes, and those that it leaves out, each in their order."""
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (chosen if _runs(config, item, Tier.of(config)) else left).append(item)
    return chosen, left


def _runs(config: pytest.Config, item: pytest.Item, tier: Tier) -> bool:
    if tier is Tier.QUICK:
        return not _is_long(item)
    if tier is Tier.REST and not _is_long(item):
        return item.nodeid.partition("[")[0] in config.stash[_AGAIN]
    if item.get_closest_marker("rotating") and not is_due(item.nodeid):
        config.stash[LEFT_OUT][_file(item)] += 1
        return False
    return True


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in LONG) and item.get_closest_marker("smoke") is None


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
