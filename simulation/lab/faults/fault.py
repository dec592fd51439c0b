"""A fault as a row of the table: what it happens to, how long, how much, and its words."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple

from lockstep.simulation.lab.faults.amounts import Amount
from lockstep.simulation.lab.hosts import Hosts
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["Action", "Fault", "Halts", "Lasts", "Of", "Role", "down_hosts"]

Action = Callable[[Hosts, FaultEvent], Awaitable[None]]


def down_hosts(hosts: Hosts, event: FaultEvent) -> str:
    """Which of its hosts do not run."""
    down = [name for name in (event.target, event.other) if name and not hosts.is_up(name)]
    return f"{' and '.join(down)} {'does' if len(down) == 1 else 'do'} not run" if down else ""


class Of(Enum):
    """What a fault happens to."""

    HOST = "a host"
    LINK = "a link of two hosts, as c1-broker"
    NAME_SERVER = "a host with a name server"


class Lasts(Enum):
    """Whether a fault needs `+DURATION`."""

    NEVER = "it has no duration"
    PERHAPS = "it may have a duration"
    ALWAYS = "it needs a duration"
    UNTIL_ENDED = "without a duration it lasts until it is ended"


class Role(Enum):
    """A kind of hosts for a swarm."""

    MEMBER = "member"
    BROKER = "broker"
    NAME_SERVER = "name server"
    PRODUCER = "producer"


class Halts(Enum):
    """What stands still while a fault lasts."""

    NOTHING = "nothing"
    HOST = "its host"
    BOTH_WAYS = "the bytes between two hosts"
    THERE = "the bytes from the first host to the second one"
    BACK = "the bytes from the second host to the first one"


class Fault(NamedTuple):
    """A row of the table.

    Args:
        example: its hosts, its time, and what else must be written.
        did: what happened, with {a}: its host, {b}: the other one, {for_}: " for 61.2 s", {again}: when it started
            again.
        ended: what its end changed; empty: nothing, or `did` says it already.
        target: where none is written; empty: it must be written.
        drawn: the hosts for which a swarm draws it; those of a link are always a member and the broker.
        amount: what `=AMOUNT` is; None: there is none.
        then: what a duration adds, for those that need none.
        by_hand: what a person does to a run; a swarm of all faults leaves it out.
        idle: why it would have no effect now; empty: it has one.
        action: None: worlds alone play it, each in its own way.
    """

    name: str
    summary: str = ""
    example: str = ""
    did: str = ""
    ended: str = ""
    of: Of = Of.HOST
    lasts: Lasts = Lasts.NEVER
    target: str = ""
    drawn: tuple[Role, ...] = (Role.MEMBER,)
    amount: Amount | None = None
    then: str = ""
    ends_process: bool = False
    halts: Halts = Halts.NOTHING
    by_hand: bool = False
    idle: Callable[[Hosts, FaultEvent], str] = down_hosts
    action: Action | None = None

    @property
    def help(self) -> str:
        """The summary, and what a duration adds."""
        return f"{self.summary.removesuffix('.')}; {self.then}." if self.then else self.summary

    @property
    def keeps_down(self) -> bool:
        """Whether its host is down while it lasts."""
        return self.ends_process and self.lasts is not Lasts.NEVER
