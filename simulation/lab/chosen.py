"""An experiment with the setup and the faults that somebody chose."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from lockstep.simulation.lab.experiment import Experiment
from lockstep.simulation.lab.faults.text import read_fault
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.setup import NUMBERS, why_no_number
from lockstep.simulation.lab.user.story import Story, setup_of

__all__ = ["chosen_run"]


def chosen_run(
    name: str,
    *,
    setup: Mapping[str, Any],
    faults: Sequence[str] = (),
    consumer: Sequence[str] = (),
    broker: Sequence[str] = (),
) -> Experiment[Any]:
    """The experiment of a name, in another way.

    Args:
        setup: arguments of Setup, as people write them.
        faults: as "kill c1@30s", instead of those that the seed draws.
        consumer, broker: settings as NAME=VALUE.

    Raises:
        UnknownExperimentError: there is none with this name.
        ValueError: the text says what cannot be so.
    """
    experiment = find_experiment(name)
    if isinstance(experiment, Story):
        # By time, as where faults come one by one. At one instant options of one fault stay together.
        events = sorted(map(read_fault, faults), key=attrgetter("at_ms"))
        read = setup_of(setup)
        for key, value in read.items():
            if key in NUMBERS and (allowed := why_no_number(key, value)):
                raise ValueError(f"{key} is {value!r}, not {allowed}")
        changed = experiment.with_setup(read, events)
        return changed.with_settings(consumer=consumer, broker=broker)
    if setup or faults or consumer or broker:
        raise ValueError(f"{name} draws everything from its seed; only --seed and --lock-mode are for it")
    return experiment
