"""Tests against real processes over localhost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes; all of them are ended after the test, and shown if it failed."""
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def module_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """As `processes`, for a process that a whole module shares."""
    with Processes(tmp_path_factory.mktemp("processes")) as started:
        yield started
