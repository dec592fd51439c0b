"""Faults that worlds alone play, each in its own way, and what plans of worlds call those of the table."""

from typing import Final

from lockstep.simulation.lab.faults.fault import Fault, Halts
from lockstep.simulation.lab.hosts import BROKER

__all__ = ["IN_WORLDS", "ITS", "OF_WORLDS"]

OF_WORLDS: Final = {
    fault.name: fault
    for fault in (
        Fault("join", did="{a} joined the group"),
        Fault(
            "broker table lost", did="{a}'s process was killed, its file of locks was lost{again}", ends_process=True
        ),
        Fault(
            "slow answers",
            did="the answers of {b} reached {a} late, and then not at all{for_}",
            ended="the answers of {b} reached {a} again",
            halts=Halts.BACK,
        ),
        Fault("reset", did="an administrator moved the group's offsets back"),
        Fault("busy", did="{a} refused some requests unread, because it was busy{for_}"),
        Fault("full", did="the store of {a} refused some messages{for_}"),
        Fault("lost answer", did="the answer of a pop with messages for {a} was lost{for_}"),
    )
}
ITS: Final = "*"  # the member of the event
# Plans of worlds name some hosts in the name of a fault. That name -> the name in the table, and its two hosts.
IN_WORLDS: Final[dict[str, tuple[str, str, str]]] = {
    "crash": ("kill", ITS, ""),
    "restart": ("kill", ITS, ""),  # and the same member again at once
    "power off": ("power-off", ITS, ""),
    "cut": ("cut", ITS, BROKER),
    "cut at the member": ("cut-one-side", ITS, BROKER),
    "cut at the broker": ("cut-one-side", BROKER, ITS),
    "partition": ("partition", ITS, BROKER),
    "hold to the broker": ("hold", ITS, BROKER),
    "hold to the member": ("hold", BROKER, ITS),
    "slow answers": ("slow answers", ITS, BROKER),
    "broker stall": ("stall", BROKER, ""),
    "broker stop": ("restart-broker", BROKER, ""),
    "broker kill": ("kill", BROKER, ""),
    "broker power cut": ("power-off", BROKER, ""),
    "broker clock": ("clock", BROKER, ""),
    "broker table lost": ("broker table lost", BROKER, ""),
}
