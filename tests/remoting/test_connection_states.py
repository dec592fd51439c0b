"""The tables of states: each is closed and whole."""

import pytest

from lockstep.remoting.connections.connection_states import LIFE, MACHINES, REQUEST, Life, Machine, Request

each_machine = pytest.mark.parametrize("machine", MACHINES, ids=[machine.title for machine in MACHINES])


@each_machine
def test_every_next_state_has_a_row(machine: Machine) -> None:
    """No event leads out of the table."""
    assert {after for row in machine.table.values() for after in row.values()} <= set(machine.table)


@each_machine
def test_every_state_can_be_reached(machine: Machine) -> None:
    """From the states in which the machine may begin."""
    reached = set(machine.starts)
    for _ in machine.table:
        reached |= {after for state in reached for after in machine.table[state].values()}
    assert reached == set(machine.table)


def test_an_ended_request_stays_ended() -> None:
    """Each event ends a waiting request, and no event begins it again."""
    assert [state for state, row in REQUEST.items() if row] == [Request.WAITING]
    assert Request.WAITING not in REQUEST[Request.WAITING].values()


def test_a_connection_never_opens_again() -> None:
    """From each state but the first, life goes on towards its end only."""
    order = list(LIFE)
    assert order[0] is Life.NEW
    assert order[-1] is Life.CLOSED
    for state, row in LIFE.items():
        assert all(order.index(after) >= order.index(state) for after in row.values())
