"""The table of protections fits the code: each text stands once, each named test exists."""

import pytest

from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.found import read_found
from tests.mutants.protections import PROTECTIONS, ROOT, Protection

BY_NAME = {protection.name: protection for protection in PROTECTIONS}


def test_names_are_unique() -> None:
    """A name stands for one protection."""
    assert len(BY_NAME) == len(PROTECTIONS)


@pytest.mark.parametrize("protection", PROTECTIONS, ids=BY_NAME)
def test_a_protection_can_be_taken_out(protection: Protection) -> None:
    """Its text stands once in its file, and what is left without it is Python."""
    source = (ROOT / protection.file).read_text(encoding="utf-8")
    compile(protection.mutate(source), protection.file, "exec", dont_inherit=True)


@pytest.mark.parametrize("protection", PROTECTIONS, ids=BY_NAME)
def test_its_tests_exist(protection: Protection) -> None:
    """Each is a file, or a test of a file."""
    for test in protection.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_each_protection_is_found_by_worlds_or_says_why_not() -> None:
    """Nothing is left open, and no reason stands beside a world that finds it."""
    found = {name for name, one in read_found().items() if one.is_found}
    assert sorted([*found, *BEYOND_WORLDS, *RARE]) == sorted(BY_NAME)
