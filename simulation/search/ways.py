"""Several ways to run one story: the combinations of what `--with` says."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.chosen import chosen_run
from lockstep.simulation.lab.experiment import Experiment, LockMode, own_mode, why_no_mode
from lockstep.simulation.lab.parameters import PARAMETERS
from lockstep.simulation.lab.setup import NUMBERS, why_no_number
from lockstep.simulation.lab.user.settings import setting_owners

__all__ = ["WAYS_MAX", "Base", "Way", "read_ways", "story_of"]

WAYS_MAX: Final = 64
_MODE: Final = "lock_mode"
_READ: Final[dict[type, Callable[[str], object]]] = {
    int: int,
    float: float,
    bool: {"true": True, "false": False}.__getitem__,
}
# Fields of Setup that people write in another way, or under another name.
_TEXTS: Final = {"work": "work", "for": "life", "store": "store", "strategy": "strategy"}
_NUMBERS: Final = [name for name in NUMBERS if name not in ("work_ms", "life_ms")]


class Way(NamedTuple):
    """One combination: the names and the values of --with, as they are written."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Base:
    """What all ways of a comparison have in common, as `chosen_run` takes it."""

    name: str
    setup: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[str] = ()
    consumer: Sequence[str] = ()
    broker: Sequence[str] = ()


def read_ways(texts: Sequence[str]) -> list[Way]:
    """The combinations of "NAME=VALUE,VALUE", in the order of the texts. Raises ValueError."""
    choices: dict[str, list[tuple[str, str]]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        several = [value.strip() for value in values.split(",")]
        if not name or not equals or not all(several):
            raise ValueError(f"--with {text}: write NAME=VALUE,VALUE")
        if name in choices:
            raise ValueError(f"--with {text}: {name} is there twice; write its values together")
        if len(set(several)) < len(several):
            raise ValueError(f"--with {text}: a value is there twice")
        choices[name] = [(name, value) for value in several]
    ways = [Way(values) for values in itertools.islice(itertools.product(*choices.values()), WAYS_MAX + 1)]
    if len(ways) > WAYS_MAX:
        raise ValueError(f"more than {WAYS_MAX} combinations: compare fewer values at once")
    return ways


def story_of(base: Base, way: Way) -> tuple[Experiment[Any], LockMode]:
    """The story of one way, and its lock mode.

    Raises:
        UnknownExperimentError: there is none with this name.
        ValueError: a name or a value of the way cannot be so.
    """
    mode, setup = "", dict(base.setup)
    settings = {"consumer": list(base.consumer), "broker": list(base.broker)}
    for name, value in way.values:
        if name == _MODE:
            mode = value
        elif name in _TEXTS or name in PARAMETERS:
            setup[_TEXTS.get(name, name)] = value
        elif name in _NUMBERS:
            setup[name] = _number(name, value)
        else:
            whose, setting = _setting(name)
            settings[whose].append(f"{setting}={value}")
    experiment = chosen_run(base.name, setup=setup, faults=base.faults, **settings)
    if not mode:
        mode = own_mode(experiment)
    if why := why_no_mode(experiment, mode):
        raise ValueError(f"lock mode {why}")
    return experiment, LockMode(mode)


def _number(name: str, text: str) -> Any:
    try:
        value: Any = _READ[NUMBERS[name]](text)
    except (ValueError, KeyError):
        value = None
    if allowed := why_no_number(name, value):
        raise ValueError(f"--with {name}={text}: write {allowed}")
    return value


def _setting(name: str) -> tuple[str, str]:
    """Whose setting it is, and its name there: "broker.lock_max_live_time_ms" chooses where both have one."""
    whose, _, setting = name.partition(".")
    if whose not in ("consumer", "broker"):  # RocketMQ's names have dots
        whose, setting = "", name
    owners = [one for one in setting_owners(setting) if whose in ("", one)]
    if not owners:
        known = [_MODE, *_TEXTS, *_NUMBERS, *PARAMETERS]
        raise ValueError(f"--with {name}: no story has it; {known_names(name, known, 'docs/settings.md')}")
    if len(owners) > 1:
        raise ValueError(
            f"--with {name}: {' and '.join(owners)} have it; write {' or '.join(f'{one}.{name}' for one in owners)}"
        )
    return owners[0], setting
