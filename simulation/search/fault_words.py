"""Faults as sentences of the domain."""

from typing import Final

from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.findings import Band

__all__ = ["end_words", "fault_words", "named", "seconds"]

# Fault -> what happened; {a}: its host, {b}: the other host, {for_}: " for 61.2 s" if it lasted.
_WORDS: Final = {
    "join": "{a} joined the group",
    "leave": "{a} left the group",
    "crash": "{a}'s process was killed",
    "kill": "{a}'s process was killed{for_}",
    "power off": "{a}'s machine lost its power",
    "restart": "{a}'s process was killed, and started again{after}",
    "stall": "{a} was stopped{for_} (SIGSTOP)",
    "sleep": "{a}'s machine slept{for_}",
    "cut": "the connections between {a} and {b} were cut",
    "cut at the member": "the connections of {a} ended at {a}; {b} did not hear of it",
    "cut at the broker": "the connections of {a} ended at {b}; {a} did not hear of it",
    "partition": "no bytes passed between {a} and {b}{for_}",
    "hold to the broker": "nothing that {a} sent reached {b}{for_}",
    "hold to the member": "nothing that {b} sent reached {a}{for_}",
    "slow answers": "the answers of {b} reached {a} late, and then not at all{for_}",
    "clock": "{a}'s clock was set, and its process started again{after}",
    "broker stall": "{a} was stopped{for_} (SIGSTOP)",
    "broker stop": "{a} was shut down, and started again{after}",
    "broker kill": "{a}'s process was killed, and started again{after}",
    "broker power cut": "{a}'s machine lost its power, and started again{after}",
    "broker clock": "{a}'s clock was set, and its process started again{after}",
    "broker table lost": "{a}'s process was killed, lost its file of locks, and started again{after}",
    "reset": "an administrator moved the group's offsets back",
}


_END_WORDS: Final = {
    **dict.fromkeys(("stall", "sleep", "broker stall"), "{a} went on"),
    **dict.fromkeys(("partition", "hold"), "bytes passed between {a} and {b} again"),
    "hold to the broker": "what {a} had sent went on to {b}",
    "hold to the member": "what {b} had sent went on to {a}",
    "slow answers": "the answers of {b} reached {a} again",
}


def named(host: str) -> str:
    """A host in a sentence."""
    return f"the {host}" if host == BROKER else host


def seconds(duration_ms: int) -> str:
    """A duration as people say it."""
    return f"{duration_ms} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


def fault_words(band: Band) -> str:
    """What a fault did, as it was played."""
    lasted = "" if band.end_ms is None else seconds(band.end_ms - band.at_ms)
    a, b = named(band.target), named(band.other)
    words = _WORDS.get(band.fault, f"{band.fault}: {' and '.join(filter(None, (a, b)))}{{for_}}")
    return words.format(a=a, b=b, for_=f" for {lasted}" if lasted else "", after=f" after {lasted}" if lasted else "")


def end_words(band: Band) -> str:
    """What the end of a fault changed; empty: nothing, or its words say it already."""
    return _END_WORDS.get(band.fault, "").format(a=named(band.target), b=named(band.other))
