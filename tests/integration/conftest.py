"""Tests against real processes over localhost; hostile bytes also go to a broker on the simulated network."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.harness.attacked import Attack, on_a_process, on_the_simulated_network
from tests.integration.harness.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes; all of them are ended after the test, and shown if it failed."""
    with Processes(tmp_path) as started:
        yield started


@pytest.fixture(params=["simulated", pytest.param("process", marks=pytest.mark.long)])
def attack(request: pytest.FixtureRequest, tmp_path: Path) -> Attack:
    """`attack(story, *options)`: the story against a broker on the simulated network, and against a real one.

    Both get the same bytes. A module marks one of its tests `smoke`, so that `make test` starts a process for it.
    """
    return on_the_simulated_network if request.param == "simulated" else partial(on_a_process, tmp_path)
