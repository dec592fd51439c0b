"""A plan as a JSON file: what `shrink` writes, and `replay`, `explain` and the timeline read.

The file names the experiment, the seed and the lock mode, and all fields of the plan, so it also runs when a later
version draws other plans from the seed.
"""

import json
from dataclasses import fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment

__all__ = ["PlanFileError", "SavedPlan", "read_plan", "write_plan"]

_HEAD: Final = ("experiment", "seed", "lock_mode", "kind", "plan")


class PlanFileError(ValueError):
    """The text says what is wrong with the file."""


class SavedPlan(NamedTuple):
    """`kind` is the kind of violation that it was made for."""

    name: str  # of the experiment
    experiment: Experiment[Any]
    plan: Any
    kind: str


def write_plan(path: Path, name: str, plan: Plan, kind: str) -> None:
    """Write a plan of the experiment with this name. Raises OSError."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    head = (name, plan.seed, plan.lock_mode, kind, values)
    path.write_text(json.dumps(dict(zip(_HEAD, head, strict=True)), indent=2) + "\n", encoding="utf-8")


def read_plan(path: Path) -> SavedPlan:
    """Read a plan. Raises PlanFileError."""
    try:
        name, seed, mode, kind, values = (json.loads(path.read_text(encoding="utf-8"))[key] for key in _HEAD)
        experiment = find_experiment(name)
        plan: Any = experiment.draw(int(seed), LockMode(mode))
        hints = get_type_hints(type(plan))
        known = {key: _decoded(hints[key], value) for key, value in values.items()}
        return SavedPlan(name, experiment, replace(plan, **known), str(kind))
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from None
    except UnknownExperimentError as error:
        raise PlanFileError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PlanFileError(f"{path} is no plan that `lockstep-sim shrink` wrote: {reason}") from None


def _decoded(hint: Any, value: Any) -> Any:
    """A value of JSON as the type that a plan's field has."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_decoded(kind, one) for kind, one in zip(kinds, value, strict=True))
    if hint is Any or isinstance(value, dict):
        return value
    if origin is UnionType or value is None:
        return None if value is None else _decoded(next(kind for kind in arguments if kind is not type(None)), value)
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        kinds = list(get_type_hints(hint).values())
        return hint(*(_decoded(kind, one) for kind, one in zip(kinds, value, strict=True)))
    if isinstance(value, hint):
        return value
    return hint(value)  # of an enum
