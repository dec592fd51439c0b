"""The evidence of one run, as plain data: all that a timeline is drawn from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.order.report import Violation
from lockstep.protocol.epochs import COUNTER_MAX, boot_of, make_epoch
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.findings import Band, Finding
from lockstep.simulation.machine.host import HostEvent

__all__ = ["Evidence", "HostChange", "LockChange", "LockEvent", "Role"]

_EPOCH: Final = re.compile(r"(?<![\w-])(?:epoch )?(\d{13})-(\d{1,6})(?![\w-])")
_CLIENT_ID: Final = re.compile(r"\b(10(?:\.\d{1,3}){3})(?:@\d+(?:#\d+)?|@[\w-]+)?")


class Role(StrEnum):
    """What runs on a host."""

    BROKER = "broker"
    NAME_SERVER = "name server"
    CONSUMER = "consumer"
    OTHER = "client"


class LockEvent(StrEnum):
    """What a broker did with the lock of a queue."""

    GRANTED = "granted"
    RENEWED = "renewed"
    REFUSED = "refused"
    DRAINING = "draining"  # it ends at the end of a delay
    RELEASED = "released"


class LockChange(NamedTuple):
    """A change of a broker's lock table, or a request that it refused.

    Args:
        at_ms: virtual, since the start.
        client_id: of the owner; of a refusal: of the client that asked.
        ends_ms: when the lock ends unless it is renewed.
        why: of a release, a word for people; of a refusal the answer.
        other: of a refusal the owner, if there is one.
    """

    at_ms: int
    group: str
    queue: MessageQueue
    event: LockEvent
    client_id: str
    epoch: int = 0
    ends_ms: int = 0
    why: str = ""
    other: str = ""


class HostChange(NamedTuple):
    at_ms: int
    host: str
    event: HostEvent
    text: str = ""


@dataclass
class Evidence:
    """One run.

    Args:
        label: the name of the run beside others: "fenced", "as reported", "mended".
        addresses: host by address.
        records: the trace of each client, by host.
        violations: those of the judge that count as violations of the run.
        error: what ended the run before its end; empty: it reached it.
        boots: of the epochs of the run, in order; `timeline_of` finds them.
    """

    label: str
    elapsed_ms: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    hosts: list[HostChange] = field(default_factory=list)
    locks: list[LockChange] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    records: dict[str, list[Record]] = field(default_factory=dict)
    bands: list[Band] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    allowed: int = 0  # findings of the judge that the experiment allows, such as calls that a fence made harmless
    boots: list[int] = field(default_factory=list)
    trace_hash: str = ""
    error: str = ""

    def host_of(self, client_id: str) -> str:
        """The host of a client id `address@pid#number`; the text itself if its address is unknown."""
        return self.addresses.get(client_id.partition("@")[0], client_id)

    def epoch_name(self, epoch: int) -> str:
        """ "3", the counter alone; "2.1" for the first epoch of a broker's second start in this run."""
        boot = self.boots.index(boot_of(epoch)) if boot_of(epoch) in self.boots else 0
        counter = epoch & COUNTER_MAX
        return f"{boot + 1}.{counter}" if boot else str(counter)

    def named(self, text: str) -> str:
        """A text with the names of hosts in the place of client ids and addresses, and with short epochs."""
        text = _CLIENT_ID.sub(lambda found: self.addresses.get(found[1], found[0]), text)
        return _EPOCH.sub(lambda found: f"epoch {self.epoch_name(make_epoch(int(found[1]), int(found[2])))}", text)
