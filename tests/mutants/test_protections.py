"""The table of protections fits the code: each can be taken out, and each named test exists."""

from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.found import read_found
from tests.mutants.protections import BY_NAME, PROTECTIONS, ROOT
from tests.rows import each_row


def test_names_are_unique() -> None:
    """A name stands for one protection."""
    assert len(BY_NAME) == len(PROTECTIONS)


def test_a_protection_can_be_taken_out() -> None:
    """What it changes is there once, and what is there without it is another code."""
    with each_row() as row:
        for protection in PROTECTIONS:
            with row(protection.name), protection.taken_out():
                pass


def test_its_tests_exist() -> None:
    """Each is a file, or a test of a file."""
    with each_row() as row:
        for protection in PROTECTIONS:
            with row(protection.name):
                for test in protection.tests:
                    path, _, name = test.partition("::")
                    assert (ROOT / path).is_file(), test
                    assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_each_protection_is_found_by_worlds_or_says_why_not() -> None:
    """Nothing is left open, and no reason stands beside a world that finds it."""
    found = {name for name, one in read_found().items() if one.is_found}
    assert sorted([*found, *BEYOND_WORLDS, *RARE]) == sorted(BY_NAME)
