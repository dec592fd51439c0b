"""`each_row`: a table in one test hides no row that fails."""

import inspect
import re

import pytest

from tests.rows import by_row, each_row


def test_all_rows_that_fail_are_named() -> None:
    """The rows after the first failure run too, and a row where nothing was raised counts as failed."""
    seen = []

    def table() -> None:
        with each_row() as row:
            for name in ("good", "wrong", "quiet", "last"):
                with row(name):
                    seen.append(name)
                    assert name != "wrong"
                    if name == "quiet":
                        with pytest.raises(ValueError, match="loud"):
                            pass

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows failed: wrong; quiet"):
        table()
    assert seen == ["good", "wrong", "quiet", "last"]


def test_a_table_without_rows_fails() -> None:
    """It would prove nothing."""

    def table() -> None:
        with each_row():
            pass

    with pytest.raises(AssertionError, match="no rows"):
        table()


def test_a_test_of_rows() -> None:
    """It is called for each row, with the fixtures it asks for, and shows pytest only these."""

    @by_row("number, square", [(1, 1), (2, 5), pytest.param(3, 10, id="three")])
    def squares(number: int, power: int, square: int) -> None:
        assert number**power == square

    assert list(inspect.signature(squares).parameters) == ["power"]
    with pytest.raises(BaseExceptionGroup, match=re.escape("2 of 3 rows failed: (2, 5); three")):
        squares(power=2)
