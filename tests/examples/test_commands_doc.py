"""The shell blocks of docs/commands.md run as they are written, one after the other, against a broker."""

import subprocess
from pathlib import Path

import pytest

from tests.commands import SCRIPTS, TIMEOUT_S, running_broker
from tests.examples.documents import ROOT, blocks

BLOCKS = blocks((ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), "sh")


@pytest.mark.long
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Each command succeeds, and the files that they make are removed by them."""
    home = tmp_path / "home"
    here = tmp_path / "here"
    home.mkdir()
    here.mkdir()
    with running_broker() as lockstep:
        path = f"{SCRIPTS}:{lockstep.environment['PATH']}"
        environment = {**lockstep.environment, "PATH": path, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        script = "set -eo pipefail\n" + "".join(BLOCKS)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(here.iterdir())
    assert {"N1 paid", "N2 paid", "N1 sent"} & set(done.stdout.splitlines())


def test_the_page_has_commands() -> None:
    """The test above runs something."""
    assert sum(block.count("lockstep ") for block in BLOCKS) >= 5
