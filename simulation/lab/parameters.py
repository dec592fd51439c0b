"""What the stories of operators may have in another way: how many at once, for how long, and so on."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.remoting.texts import known_names
from lockstep.simulation.lab.durations import duration_ms, duration_text

__all__ = ["PARAMETERS", "Parameter", "parameter_text", "read_parameters", "why_no_parameter"]

_MOST: Final = 100_000
_YEAR_MS: Final = 366 * 86_400_000


class Parameter(NamedTuple):
    """Args:
    metavar: how it is written; empty: it is a flag.
    read: raises ValueError with a sentence.
    most: the largest value.
    """

    help: str
    metavar: str
    read: Callable[[str], int | bool]
    most: int

    @property
    def type(self) -> type:
        return int if self.metavar else bool


def _count(help_text: str) -> Parameter:
    return Parameter(help_text, "N", _read_count, _MOST)


def _read_count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _duration(help_text: str) -> Parameter:
    return Parameter(help_text, "5s", duration_ms, _YEAR_MS)


def _flag(help_text: str) -> Parameter:
    return Parameter(help_text, "", _read_flag, 1)


def _read_flag(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError(f"{text!r} is neither true nor false")
    return words[text.lower()]


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "at_once": _count("so many are deployed at the same time"),
    "ready": _duration("until a process that ended is up again"),
    "pause": _duration("from then until the next ones end"),
    "killed": _flag("processes are killed, not shut down cleanly"),
    "new_addresses": _flag("a process comes back with another address, as a pod does"),
    "by": _count("so many join or leave, or are added"),
    "within": _duration("in which they join or leave, one after the other"),
    "zones": _count("hosts are in so many zones, by their numbers"),
    "outage": _duration("until the zone is up again; 0s: not before the end"),
    "failing_key": _count("the number of the key that fails"),
    "fails": _duration("so long it fails"),
    "reset_by": _duration("so far the group goes back"),
}
"""By name, with _ for -. Times are ms."""


def read_parameters(values: Mapping[str, Any]) -> dict[str, int | bool]:
    """Of what people write, or of numbers. Raises ValueError with a sentence."""
    found: dict[str, int | bool] = {}
    for name, value in values.items():
        try:
            found[name] = PARAMETERS[name].read(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"{name.replace('_', '-')}: {error}") from None
        if why := why_no_parameter(name, found[name]):
            raise ValueError(why)
    return found


def why_no_parameter(name: str, value: Any, known: Mapping[str, Any] = PARAMETERS) -> str:
    """Why a story with some parameters has no such one; empty: it may have it."""
    shown = name.replace("_", "-")
    if name not in known:
        options = [one.replace("_", "-") for one in known]
        return f"the story has no {shown}; {known_names(shown, options)}" if options else f"the story has no {shown}"
    parameter = PARAMETERS[name]
    if isinstance(value, bool) != (parameter.type is bool) or not isinstance(value, int):
        return f"{shown} is {value!r}, no {parameter.type.__name__}"
    return "" if 0 <= value <= parameter.most else f"{shown} is {value}, not 0 to {parameter.most}"


def parameter_text(name: str, value: int | bool) -> str:
    """As a person writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return duration_text(value) if PARAMETERS[name].read is duration_ms else str(value)
