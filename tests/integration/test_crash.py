"""A broker with its store in files, killed under load: nothing acknowledged is missing, order holds.

CRASHES=200 in the environment makes it so many kills, on RocketMQ's 5 s between two writes of offsets.
"""

import os
import random

import pytest

from tests.integration.crashes import Crashes
from tests.integration.processes import Processes

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("CRASHES", "0"))
SEED = int(os.environ.get("CRASH_SEED", "1"))


@pytest.mark.timeout(600 + 10 * KILLS)
async def test_kills_lose_nothing_acknowledged(processes: Processes) -> None:
    """With a flush before each reply, SIGKILL at random moments: each acknowledged message is there under its offset,
    delayed ones come, no offset goes back beyond its flush interval, every key is handled in order."""
    crashes = Crashes(processes, random.Random(SEED), 5000 if KILLS else 1000)
    report = await crashes.run(KILLS or 10)
    text = "\n".join(report.lines())
    print(text)
    assert report.violation_counts == {}, text
    assert report.lost == 0, text
    assert len(crashes.acknowledged) > 100
