"""Experiments by their names."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.experiment import Experiment
from lockstep.simulation.lab.said import say
from lockstep.simulation.lab.user.file import UserFileError, story_of_file

__all__ = ["UnknownExperimentError", "experiment_names", "find_experiment"]

# Name -> where it is. Their modules stand above this one, so they are imported by name when they are asked for.
_EXPERIMENTS: Final = {
    "takeover": "lockstep.simulation.stories.takeover:takeover",
    "zombie": "lockstep.simulation.stories.takeover:zombie",
    "deploy": "lockstep.simulation.stories.operators:deploy",
    "scale-out": "lockstep.simulation.stories.operators:scale_out",
    "scale-in": "lockstep.simulation.stories.operators:scale_in",
    "broker-upgrade": "lockstep.simulation.stories.operators:broker_upgrade",
    "zone-lost": "lockstep.simulation.stories.operators:zone_lost",
    "slow-key": "lockstep.simulation.stories.operators:slow_key",
    "replay": "lockstep.simulation.stories.operators:replay",
    "queues-added": "lockstep.simulation.stories.operators:queues_added",
    "broker-crash": "lockstep.simulation.stories.broken:broker_crash",
    "bad-network": "lockstep.simulation.stories.broken:bad_network",
    "bad-machines": "lockstep.simulation.stories.broken:bad_machines",
    "anything": "lockstep.simulation.stories.broken:anything",
    "quiet": "lockstep.simulation.stories.quiet:quiet",
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
_ARTICLE: Final = "article/"  # and the id of a section


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
    if name.startswith(_ARTICLE):
        return _section(name.removeprefix(_ARTICLE))
    if name not in _EXPERIMENTS:
        known = known_names(name, experiment_names(), "`lockstep-sim list`")
        raise UnknownExperimentError(say("no experiment is named {name}; {known}", name=repr(name), known=known))
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


def _section(name: str) -> Experiment[Any]:
    registry = import_module("lockstep.simulation.articles.registry")
    try:
        section = registry.find_section(name)
    except registry.UnknownSection as error:
        raise UnknownExperimentError(str(error)) from None
    if section.story is None:
        raise UnknownExperimentError(f"section {name} has no mechanism, and no story that could run")
    found: Experiment[Any] = import_module("lockstep.simulation.articles.experiment").SectionExperiment(section)
    return found
