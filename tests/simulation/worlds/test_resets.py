"""What a world with administrators says of a reset that a member began."""

import pytest

from lockstep.client.consumer.ownership.reset import OffsetReset
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed


@pytest.mark.parametrize("breaks", [False, True])
def test_a_reset_that_breaks_off_is_found(breaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that raises before it stores the offset; the log event of that is no excuse."""

    def leave_table(*_: object, **__: object) -> None:
        raise RuntimeError("an error in the product")

    if breaks:
        monkeypatch.setattr(OffsetReset, "_leave_table", leave_table)
    moves = find_experiment("worlds/moves")
    outcomes = [run_seed(moves, seed, LockMode.FAITHFUL) for seed in (1, 2, 3)]
    assert [outcome.error for outcome in outcomes] == [""] * 3
    assert any(Wrong.RESET_UNDONE in outcome.wrong for outcome in outcomes) is breaks
