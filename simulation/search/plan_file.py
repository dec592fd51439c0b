"""A plan as a JSON file: what `shrink` writes, and `replay`, `explain` and the timeline read.

The file names the experiment, the seed and the lock mode, and all fields of the plan, so it also runs when a later
version draws other plans from the seed. A field that a later version added has its default, where it has one: what
worlds were before it.
"""

import json
from dataclasses import MISSING, fields, replace
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from lockstep.simulation.lab.experiment import Experiment, LockMode, Plan, why_no_mode
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment
from lockstep.simulation.search.plan_limits import WrongPlanError, check_plan

__all__ = ["PlanFileError", "SavedPlan", "parse_plan", "plan_text", "read_plan", "write_plan"]

_HEAD: Final = {"experiment": str, "seed": int, "lock_mode": str, "kind": str, "plan": dict}
_KINDS: Final = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "an object"}
_SHOWN_MAX: Final = 40
_NO_PLAN: Final = "{} is no plan that `lockstep-sim shrink` wrote: {}"
_NO_JSON: Final = "{} is no plan that `lockstep-sim shrink` wrote: it is no JSON"


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
    path.write_text(plan_text(name, plan, kind, indent=2) + "\n", encoding="utf-8")


def plan_text(name: str, plan: Plan, kind: str, *, indent: int | None = None) -> str:
    """A plan of the experiment with this name, in one line without `indent`."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    head = (name, plan.seed, plan.lock_mode, kind, values)
    separators = (",", ":") if indent is None else None
    return json.dumps(dict(zip(_HEAD, head, strict=True)), indent=indent, separators=separators)


def read_plan(path: Path) -> SavedPlan:
    """Read a plan. Raises PlanFileError."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanFileError(_NO_JSON.format(path)) from None


def parse_plan(text: str, path: Path) -> SavedPlan:
    """Read a plan from the text that `plan_text` made. Raises PlanFileError, which names the path."""
    try:
        saved = json.loads(text, object_pairs_hook=_object)
    except _Wrong as error:
        raise PlanFileError(_NO_PLAN.format(path, error)) from None
    except (ValueError, RecursionError):
        raise PlanFileError(_NO_JSON.format(path)) from None
    try:
        return _read(saved)
    except UnknownExperimentError as error:
        raise PlanFileError(f"{path}: {error}") from None
    except (_Wrong, WrongPlanError) as error:
        raise PlanFileError(_NO_PLAN.format(path, error)) from None


class _Wrong(ValueError):
    """The text says what is wrong with a part of the file."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises _Wrong for a name that it has twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Wrong(f"{name!r} is there twice")
        found[name] = value
    return found


def _read(saved: Any) -> SavedPlan:
    """Raises _Wrong, UnknownExperimentError."""
    if not isinstance(saved, dict):
        raise _Wrong(f"it is {_shortened(saved)}, not an object")
    for key, kind in _HEAD.items():
        if key not in saved:
            raise _Wrong(f"it has no {key!r}")
        if not _is_a(saved[key], kind):
            raise _Wrong(f"{key!r} is {_shortened(saved[key])}")
    name, seed, mode, kind, values = (saved[key] for key in _HEAD)
    if mode not in set(LockMode):
        raise _Wrong(f"'lock_mode' is {_shortened(mode)}, not one of {', '.join(LockMode)}")
    experiment = find_experiment(name)
    if why := why_no_mode(experiment, mode):
        raise _Wrong(f"'lock_mode' {why}")
    plan: Any = experiment.draw(seed, LockMode(mode))
    hints = get_type_hints(type(plan))
    unknown = [key for key in values if key not in hints]
    if unknown:
        raise _Wrong(f"a plan of {name} has no field {unknown[0]!r}: another version may have written it")
    added = {field.name: field.default for field in fields(plan) if field.default is not MISSING}
    read = replace(
        plan, **{**added, **{key: _decoded(f"plan.{key}", hints[key], value) for key, value in values.items()}}
    )
    for key, of_head in (("seed", seed), ("lock_mode", LockMode(mode))):
        if getattr(read, key) != of_head:
            raise _Wrong(f"plan.{key} is {getattr(read, key)}, and {key!r} is {of_head}: they are equal in a plan")
    check_plan(read)
    return SavedPlan(name, experiment, read, kind)


def _shortened(value: Any) -> str:
    """A value of JSON for an error."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _is_a(value: Any, kind: type) -> bool:
    """Whether a value of JSON has a type. True is no number, and a whole number is a number."""
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _decoded(where: str, hint: Any, value: Any) -> Any:
    """A value of JSON as the type that a plan's field has. Raises _Wrong.

    Args:
        where: its place in the file, for an error.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if value is None else _decoded(where, arguments[0], value)
    if hint is Any:
        return value
    is_row = isinstance(hint, type) and issubclass(hint, tuple)  # a NamedTuple
    if origin is tuple or is_row:
        if not isinstance(value, list):
            raise _Wrong(f"{where} is {_shortened(value)}, not a list")
        if is_row:
            kinds = list(get_type_hints(hint).values())
        else:
            kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(value) != len(kinds):
            raise _Wrong(f"{where} has {len(value)} values, not {len(kinds)}")
        read = [_decoded(f"{where}[{number}]", *both) for number, both in enumerate(zip(kinds, value, strict=True))]
        return hint(*read) if is_row else tuple(read)
    if isinstance(hint, type) and issubclass(hint, Enum):
        if value not in [one.value for one in hint]:
            raise _Wrong(f"{where} is {_shortened(value)}, not one of {', '.join(str(one.value) for one in hint)}")
        return hint(value)
    kind = dict if origin is not None else hint  # settings by their names
    if not _is_a(value, kind):
        raise _Wrong(f"{where} is {_shortened(value)}, not {_KINDS.get(kind, kind.__name__)}")
    return value
