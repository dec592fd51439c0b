"""A world says when messages are handled long after everything was healed."""

import asyncio

import pytest

from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed


@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("waits", [False, True])
def test_a_queue_that_waits_a_minute_is_found(waits: bool, mode: LockMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is not stuck: everything is handled in the end."""
    pull = PullLoop.run

    async def pull_later(self: PullLoop, process_queue: ProcessQueue) -> None:
        await asyncio.sleep(60)
        await pull(self, process_queue)

    if waits:
        monkeypatch.setattr(PullLoop, "run", pull_later)
    goings = find_experiment("worlds/goings")
    outcomes = [run_seed(goings, seed, mode) for seed in (1, 2, 3)]
    assert [outcome.error for outcome in outcomes] == [""] * 3
    assert any(Wrong.LATE in outcome.wrong for outcome in outcomes) is waits
    assert not any(Wrong.STUCK in outcome.wrong for outcome in outcomes)
