"""What is played: a story, an exhibit, a section of an article, a listener of the user, or a plan file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import isfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.chosen import chosen_run
from lockstep.simulation.lab.experiment import Experiment, LockMode, own_mode, why_no_mode
from lockstep.simulation.lab.registry import UnknownExperimentError, experiment_names
from lockstep.simulation.lab.said import say
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.search.plan_file import read_plan

__all__ = ["Choice", "Drawn", "drawn", "names_file"]

# What the page can show. With 200 members on 1,000 queues a picture of it has 150 KB; 1,000 messages a second, on 12
# members, are half of a core. Each scene has all keys. Each change of a member is told to all, once by each broker.
_SHOWN_MAX: Final = {"consumers": 200, "queues": 1_000, "brokers": 10, "name_servers": 10, "rate": 1_000, "keys": 1_000}
_CALM: Final = "quiet"
_CALM_SETUP: Final = {"consumers": 3, "queues": 8, "rate": 10, "work": "20ms", "life": "3m"}
_SECTION: Final = re.compile(r"\d/.*")


@dataclass(frozen=True)
class Choice:
    """
    Args:
        what: empty: three consumers, to which nothing happens.
        setup: arguments of Setup, as people write them.
        faults: as "kill c1@30s", instead of those that the seed draws.
        consumer, broker: settings as NAME=VALUE.
    """

    what: str = ""
    seed: int = 1
    setup: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[str] = ()
    consumer: Sequence[str] = ()
    broker: Sequence[str] = ()


class Drawn(NamedTuple):
    """A plan of an experiment. `name` is what finds it."""

    name: str
    experiment: Experiment[Any]
    plan: Any


def names_file(what: str) -> bool:
    """Whether it is a file of this machine, to be run or read."""
    return what.endswith(".py") or ".py:" in what or _is_plan(what)


def _is_plan(what: str) -> bool:
    is_code = what.endswith(".py") or ".py:" in what
    return not is_code and isfile(what)  # noqa: PTH113 - Path raises for a name that is too long


def drawn(choice: Choice, mode: str = "") -> Drawn:
    """
    Args:
        mode: a lock mode; empty: that of the story or of the file.

    Raises:
        UnknownExperimentError, ValueError: the text says what cannot be played.
    """
    changes = {"faults": choice.faults, "consumer": choice.consumer, "broker": choice.broker}
    if _is_plan(choice.what):
        if choice.setup or any(changes.values()):
            raise ValueError("the plan has all options in its file; only --lock-mode is for it")
        name, experiment, plan, _ = read_plan(Path(choice.what))
        plan = replace(plan, lock_mode=_mode(mode or plan.lock_mode, experiment))
        _check_size(vars(plan))
        return Drawn(name, experiment, plan)
    name, setup = choice.what, choice.setup
    _check_size(setup)  # before all hosts are named, to look for those of faults
    if not name:
        name, setup = _CALM, {**_CALM_SETUP, **setup}
    elif _SECTION.fullmatch(name):
        name = f"article/{name}"
    elif name in EXHIBITS:
        name = f"museum/{name}"
    try:
        experiment = chosen_run(name, setup=setup, **changes)
    except UnknownExperimentError as error:
        if name in experiment_names() or "/" in name or ".py" in name:
            raise
        text = "{error}; also an exhibit, a section as 1/2.2.2, a plan file"
        raise UnknownExperimentError(say(text, error=error.args[0])) from None
    if not mode:
        mode = own_mode(experiment)
    plan = experiment.draw(choice.seed, _mode(mode, experiment))
    _check_size(vars(plan))
    return Drawn(name, experiment, plan)


def _check_size(setup: Mapping[str, Any]) -> None:
    """Raises ValueError for what the page cannot show."""
    for name, most in _SHOWN_MAX.items():
        value = setup.get(name)
        if isinstance(value, int | float) and value > most:
            raise ValueError(f"{name} is {value:,}, and the page shows at most {most:,}")
    queues, brokers = setup.get("queues", 0), setup.get("brokers", 1)
    if isinstance(queues, int) and isinstance(brokers, int) and queues * brokers > (most := _SHOWN_MAX["queues"]):
        raise ValueError(
            f"queues is {queues:,} at each of {brokers} brokers, and the page shows at most {most:,} of all"
        )


def _mode(mode: str, experiment: Experiment[Any]) -> LockMode:
    if why := why_no_mode(experiment, mode):
        raise ValueError(f"lock mode {why}")
    return LockMode(mode)
