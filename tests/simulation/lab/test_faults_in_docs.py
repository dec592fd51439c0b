"""docs/simulator.md has the amounts that a swarm draws."""

from pathlib import Path

from lockstep.simulation.lab.faults.fault import Fault, Of
from lockstep.simulation.lab.faults.table import FAULTS


def test_the_guide_has_the_amounts_of_a_swarm() -> None:
    """Hosts, bounds and unit."""
    rows = [
        f"| `{fault.name}` | {_hosts(fault)} | {fault.amount.low} to {fault.amount.high} {fault.amount.unit} |"
        for fault in FAULTS.values()
        if fault.amount is not None
    ]
    assert "\n".join(rows) in _guide()


def _hosts(fault: Fault) -> str:
    return "member and broker" if fault.of is Of.LINK else ", ".join(role.value for role in fault.drawn)


def _guide() -> str:
    return (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
