"""The parts of a filter expression, and which parts may be combined.

The value of a part is a text, a number, a truth value, or None for unknown. Logic is three-valued and is evaluated from
left to right. A part without a result (NoAnswer) ends the evaluation, as does a part that decides alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.messages.sql.java_values import Value, are_equal, order
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import FilterError

__all__ = [
    "ORDERS",
    "Constant",
    "Part",
    "Property",
    "Truth",
    "Worth",
    "all_of",
    "any_of",
    "between",
    "compared",
    "constant",
    "equal",
    "is_in",
    "is_null",
    "negative",
    "not_between",
    "opposite",
    "property_of",
    "truth",
]

Worth = Callable[[Mapping[str, str]], Value | None]
"""The value of a part for the properties of a message. Raises NoAnswer."""

_DEPTH_MAX: Final = 200  # our limit: Python's stack

_TEXT_MAX: Final = 80


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of an expression. `depth`: levels of nested parts, with this one."""

    worth: Worth
    depth: int
    text: str  # for errors

    def __post_init__(self) -> None:
        if len(self.text) > _TEXT_MAX:
            object.__setattr__(self, "text", f"{self.text[:_TEXT_MAX]}...")
        if self.depth > _DEPTH_MAX:
            raise FilterError(f"the expression is nested more than {_DEPTH_MAX} deep")


@dataclass(frozen=True, slots=True, eq=False)
class Truth(Part):
    """A part whose value is a truth value or None."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Part):
    value: Value | None


@dataclass(frozen=True, slots=True, eq=False)
class Property(Part):
    name: str


def constant(value: Value | None) -> Constant:
    text = "NULL" if value is None else str(value).upper() if isinstance(value, bool) else short_text(value)
    return Constant(lambda _: value, 1, text, value)


def property_of(name: str) -> Property:
    return Property(lambda properties: properties.get(name), 1, short_text(name), name)


def negative(part: Part) -> Part:
    """The number with the opposite sign; unknown for any other value, also for the text of a property."""

    def worth(properties: Mapping[str, str]) -> Value | None:
        value = part.worth(properties)
        return -value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    return Part(worth, part.depth + 1, f"-{part.text}")


# Comparisons -----------------------------------------------------------------------------------------------------

ORDERS: Final[Mapping[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


def compared(left: Part, sign: str, right: Part) -> Truth:
    """A comparison with a sign of ORDERS. Raises FilterError for texts, truth values and NULL, which have no order."""
    for part in (left, right):
        no_number = isinstance(part, Constant) and (part.value is None or isinstance(part.value, str))
        if no_number or _is_truth_value(part) or isinstance(part, Truth):
            raise FilterError(f"{part.text} has no order: only numbers and properties may stand beside {sign}")
    wanted = ORDERS[sign]

    def worth(properties: Mapping[str, str]) -> bool | None:
        low, high = left.worth(properties), right.worth(properties)
        return None if low is None or high is None else wanted(order(low, high))

    return Truth(worth, _depth_over(left, right), f"({left.text} {sign} {right.text})")


def between(part: Part, low: Part, high: Part) -> Truth:
    """BETWEEN. Raises FilterError as `compared`, and for a lower bound above the upper one."""
    found = all_of([compared(part, ">=", low), compared(part, "<=", high)])
    if isinstance(low, Constant) and isinstance(high, Constant):
        assert low.value is not None, "compared refuses NULL"
        assert high.value is not None, "compared refuses NULL"
        if order(low.value, high.value) > 0:
            raise FilterError(f"nothing is between {low.text} and {high.text}: the lower bound must come first")
    return found


def not_between(part: Part, low: Part, high: Part) -> Truth:
    """NOT BETWEEN. As in RocketMQ the lower bound may be above the upper one; then it is true for every number."""
    return any_of([compared(part, "<", low), compared(part, ">", high)])


def equal(left: Part, right: Part) -> Truth:
    """Equality: unknown without a left value, false without only a right one. Raises FilterError for NULL."""
    for part in (left, right):
        if isinstance(part, Constant) and part.value is None:
            raise FilterError("nothing is equal to NULL; write IS NULL or IS NOT NULL")
    if _is_truth_value(left) and isinstance(right, Constant) and not _is_truth_value(right):
        raise FilterError(f"{left.text} cannot be compared with {right.text}")

    def worth(properties: Mapping[str, str]) -> bool | None:
        one, other = left.worth(properties), right.worth(properties)
        if one is None:
            return True if other is None else None
        return other is not None and are_equal(one, other)

    return Truth(worth, _depth_over(left, right), f"({left.text} = {right.text})")


def is_null(part: Part) -> Truth:
    return Truth(lambda properties: part.worth(properties) is None, part.depth + 1, f"({part.text} IS NULL)")


def is_in(part: Part, values: list[str]) -> Truth:
    """IN. Raises FilterError when `part` is no property."""
    if not isinstance(part, Property):
        raise FilterError(f"only a property can be IN a list, not {part.text}")
    name, wanted = part.name, frozenset(values)

    def worth(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else value in wanted

    return Truth(worth, 2, f"({part.text} IN ...)")


# Logic -----------------------------------------------------------------------------------------------------------


def truth(part: Part) -> Part:
    """`part` as a condition. A property is false, whatever its text, or unknown if it is missing.

    Raises FilterError for a text or a number.
    """
    if isinstance(part, Truth) or _is_truth_value(part) or (isinstance(part, Constant) and part.value is None):
        return part
    if not isinstance(part, Property):
        raise FilterError(f"{part.text} is no condition; compare it with a value")
    name = part.name
    return Truth(lambda properties: False if name in properties else None, 2, part.text)


def opposite(part: Part) -> Truth:
    """NOT. Raises FilterError as `truth`."""
    inner = truth(part)

    def worth(properties: Mapping[str, str]) -> bool | None:
        value = inner.worth(properties)
        return None if value is None else not value

    return Truth(worth, inner.depth + 1, f"(NOT {part.text})")


def all_of(parts: list[Part]) -> Truth:
    """AND of two or more. Raises FilterError as `truth`."""
    return _joined(parts, decisive=False, word="AND")


def any_of(parts: list[Part]) -> Truth:
    """OR of two or more. Raises FilterError as `truth`."""
    return _joined(parts, decisive=True, word="OR")


def _joined(parts: list[Part], *, decisive: bool, word: str) -> Truth:
    inner = [truth(part) for part in parts]

    def worth(properties: Mapping[str, str]) -> bool | None:
        result: bool | None = not decisive
        for part in inner:
            value = part.worth(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return Truth(worth, _depth_over(*inner), f"(... {word} ...)")


def _is_truth_value(part: Part) -> bool:
    return isinstance(part, Constant) and isinstance(part.value, bool)


def _depth_over(*parts: Part) -> int:
    return max(part.depth for part in parts) + 1
