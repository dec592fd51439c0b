"""Experiments by their names."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.experiment import Experiment
from lockstep.simulation.lab.user.file import UserFileError, story_of_file

__all__ = ["UnknownExperimentError", "experiment_names", "find_experiment"]

# Name -> where it is. Their modules stand above this one, so they are imported by name when they are asked for.
_EXPERIMENTS: Final = {
    "takeover": "lockstep.simulation.stories.takeover:takeover",
    "zombie": "lockstep.simulation.stories.takeover:zombie",
    "rolling-restart": "lockstep.simulation.stories.takeover:rolling_restart",
    "broker-crash": "lockstep.simulation.stories.broken:broker_crash",
    "bad-network": "lockstep.simulation.stories.broken:bad_network",
    "bad-machines": "lockstep.simulation.stories.broken:bad_machines",
    "anything": "lockstep.simulation.stories.broken:anything",
    "worlds": "lockstep.simulation.worlds.experiment:WORLDS",
    **{
        f"worlds/{part}": f"lockstep.simulation.worlds.focused:{part.upper()}"
        for part in (
            *("goings", "stops", "restarts", "power", "links", "resets", "threads", "sends", "bursts"),
            *("grants", "waits", "moves", "mixed", "brokers", "leaves", "clocks", "busy"),
        )
    },
    "worlds/fifo": "lockstep.simulation.worlds.fifo.fifo_world:FIFO_WORLDS",
    "worlds/producers": "lockstep.simulation.worlds.producing.producers_world:PRODUCERS_WORLDS",
}
_FOCUSED: Final = "worlds/"  # and the part of order that they look at
_MUSEUM: Final = "museum/"  # and the key of an exhibit


class UnknownExperimentError(LookupError):
    """The text names the nearest experiments."""


def experiment_names() -> list[str]:
    """The names of all experiments."""
    return list(_EXPERIMENTS)


def find_experiment(name: str) -> Experiment[Any]:
    """An experiment by its name, or that of a user's "FILE.py:NAME". Raises UnknownExperimentError."""
    if ".py:" in name or name.endswith(".py"):
        try:
            return story_of_file(name)
        except UserFileError as error:
            raise UnknownExperimentError(str(error)) from error
    if name.startswith(_MUSEUM):
        return _exhibit(name.removeprefix(_MUSEUM))
    if name not in _EXPERIMENTS:
        raise UnknownExperimentError(
            f"no experiment is named {name!r}; {known_names(name, experiment_names(), '`lockstep-sim list`')}"
        )
    module, _, attribute = _EXPERIMENTS[name].partition(":")
    found: Experiment[Any] = getattr(import_module(module), attribute)
    return found


def _exhibit(key: str) -> Experiment[Any]:
    exhibits: Mapping[str, Experiment[Any]] = import_module("lockstep.simulation.museum.registry").EXHIBITS
    if key not in exhibits:
        raise UnknownExperimentError(
            f"the museum has no exhibit {key!r}; {known_names(key, exhibits, '`lockstep-sim museum`')}"
        )
    return exhibits[key]
