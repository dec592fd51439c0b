"""A broker with a store in files is killed under load: no acknowledged message is missing, and order holds."""

import os
import random

import pytest

from tests.integration.harness.crashes import Crashes
from tests.integration.harness.processes import Processes

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("CRASHES", "0"))
SEED = int(os.environ.get("CRASH_SEED", "1"))


@pytest.mark.timeout(600 + 10 * KILLS)
async def test_kills_lose_nothing_acknowledged(processes: Processes) -> None:
    """With a flush before each reply and SIGKILL at random moments each acknowledged message is there under its
    offset, delayed ones are delivered, no offset goes back further than its flush interval, and every key is handled
    in order."""
    crashes = Crashes(processes, random.Random(SEED), 5000 if KILLS else 1000)
    report = await crashes.run(KILLS or 10)
    text = "\n".join(report.lines())
    print(text)
    assert report.violation_counts == {}, text
    assert report.lost == 0, text
    assert len(crashes.acknowledged) > 100
