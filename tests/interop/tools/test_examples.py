"""The examples for users of other languages run as they stand: RocketMQ's own clients beside `lockstep-broker`."""

import shutil
from pathlib import Path

import pytest

from tests.interop.harness.installed import ROOT
from tests.interop.harness.programs import run_program
from tests.interop.harness.table import RowMaker

pytestmark = pytest.mark.timeout(900)
EXAMPLES = {
    "java": (("Java", "4.9.8"), ["mvn", "-q", "-B", "test"]),
    "go": (("Go", "2.1.2"), ["go", "test", "./..."]),
}


@pytest.mark.parametrize("language", EXAMPLES)
def test_the_example_passes(language: str, tmp_path: Path, interop_row: RowMaker) -> None:
    """In a copy of its folder, with the commands of this environment on the PATH."""
    (client, version), command = EXAMPLES[language]
    scenario = f"examples/{language}: ordered, and two hours that pass at once"
    row = interop_row(client, version, f"{client} -> Lockstep", scenario)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    folder = tmp_path / language
    shutil.copytree(ROOT / "examples" / language, folder, ignore=shutil.ignore_patterns("target"))
    run_program(folder, *command)
    row.order_kept = True  # which the example itself asserts
