"""Programs as users write them: RocketMQ's own clients beside `lockstep-broker`."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.commands import SCRIPTS

__all__ = ["run_program"]

END_S: Final = 600  # some are compiled first


def run_program(folder: Path, *command: str, **environment: str) -> None:
    """Run it in a folder to its end, which is a good one, with the commands of this environment on the PATH."""
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=END_S,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
