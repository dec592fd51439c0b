"""What a variant changes, and that all is as it was after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from lockstep.simulation.museum.variant import VariantError, edited, put, variant

HERE: Final = __name__
_LIMIT: Final = 3
_TABLE: Final = {"a": 1, "b": 2}


def _sum(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        if number > _LIMIT:  # a comment
            continue
        total += number * 2
    return total  # fmt: skip


class _Base:
    def name(self) -> str:
        return "base"


class _Thing(_Base):
    __slots__ = ("__hidden",)

    def __init__(self, *, hidden: int = 7) -> None:
        self.__hidden = hidden

    def name(self) -> str:
        return super().name() + " thing"

    @property
    def hidden(self) -> int:
        return self.__hidden

    @classmethod
    def made(cls) -> int:
        return cls(hidden=1).hidden

    @staticmethod
    @contextmanager
    def opened() -> Iterator[list[str]]:
        yield ["opened"]

    async def later(self) -> int:
        return self.__hidden


_called = _sum  # as a module has it that imported the function


@pytest.mark.parametrize(
    ("old", "new", "sum_of_1_2_9"),
    [
        ("number*2", "number", 3),
        ("number > _LIMIT", "False", 24),
        ("total += number * 2", "", 0),
        ("if number > _LIMIT: continue", "", 24),
        ("if number > _LIMIT:\n    continue\ntotal += number * 2", "total += 1", 3),
        ("return total", "total += 1\nreturn total", 7),
        ("continue", "", 24),
    ],
)
def test_code_is_edited_as_a_tree(old: str, new: str, sum_of_1_2_9: int) -> None:
    """Spaces, lines and comments do not matter. Whoever calls the function gets the other code, and then the old."""
    with edited(HERE, "_sum", old, new)():
        assert _called([1, 2, 9]) == sum_of_1_2_9
    assert _called([1, 2, 9]) == 6


def test_all_kinds_of_functions_can_be_edited() -> None:
    """Properties, class methods, decorated ones, coroutines; `super()` and hidden names stay what they are."""
    thing = _Thing()
    begin = variant(
        edited(HERE, "_Thing.name", "' thing'", "' changed'"),
        edited(HERE, "_Thing.hidden", "self.__hidden", "-self.__hidden"),
        edited(HERE, "_Thing.made", "cls(hidden=1)", "cls(hidden=2)"),
        edited(HERE, "_Thing.opened", "'opened'", "'changed'"),
        edited(HERE, "_Thing.later", "self.__hidden", "self.__hidden + 1"),
    )
    with begin():
        assert (thing.name(), thing.hidden, _Thing.made()) == ("base changed", -7, -2)
        with _Thing.opened() as opened:
            assert opened == ["changed"]
        with pytest.raises(StopIteration) as ended:
            thing.later().send(None)
        assert ended.value.value == 8
    assert (thing.name(), thing.hidden, _Thing.made()) == ("base thing", 7, 1)


@pytest.mark.parametrize(
    ("where", "old", "new", "why"),
    [
        ("_sum", "total", "0", "has 'total' 3 times"),
        ("_sum", "gone()", "0", "has 'gone\\(\\)' 0 times"),
        ("_sum", "number * 2", "(number*2)", "would stay as it is"),
        ("_gone", "a", "b", "no such function"),
        ("_Thing.gone", "a", "b", "no such function"),
        ("_Gone.name", "a", "b", "no such function"),
        ("_LIMIT", "3", "4", "no function of Python"),
        ("_Thing.name", "super().name()", "''", "other names of what is around it"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(where: str, old: str, new: str, why: str) -> None:
    """The code must be there once, and become other code."""
    with pytest.raises(VariantError, match=why), edited(HERE, where, old, new)():
        pass


def test_constants_and_rows_of_tables_are_put() -> None:
    """In the table itself, so that whoever imported it sees it too; defaults of arguments are a table."""
    table = _TABLE
    begin = variant(
        put(HERE, "_LIMIT", "_TABLE['a'] + 8"),
        put(HERE, "_TABLE['b']", "5"),
        put(HERE, "_Thing.__init__.__kwdefaults__['hidden']", "9"),
    )
    with begin():
        assert (_sum([9]), table, _Thing().hidden) == (18, {"a": 1, "b": 5}, 9)
    assert (_sum([9]), table, _Thing().hidden) == (0, {"a": 1, "b": 2}, 7)


@pytest.mark.parametrize(
    ("target", "value", "why"),
    [("_GONE", "1", "has no _GONE"), ("_TABLE['c']", "1", "has no"), ("_LIMIT", "3", "3 already")],
)
def test_a_value_that_does_not_fit_is_refused(target: str, value: str, why: str) -> None:
    """It must be there, and become another one."""
    with pytest.raises(VariantError, match=why), put(HERE, target, value)():
        pass
