"""A console as a process, over a broker with messages and two members, for a browser."""

import os
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.commands import TIMEOUT_S, Lockstep, Running, running_broker

__all__ = ["GROUP", "TOPIC", "Site", "running_site", "said"]

TOPIC, GROUP = "orders", "shop"
EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
FENCED = ("--lock-mode", "fenced", "--lock-delay-ms", "500", "--lock-delay-legacy-ms", "500")


@dataclass
class Site:
    """
    Args:
        address: Of the first page, without a slash at its end.
        members: Of the group, the one that started first in front.
    """

    address: str
    lockstep: Lockstep
    members: list[Running] = field(default_factory=list)


@contextmanager
def running_site() -> Iterator[Site]:
    """Four queues, messages of five keys, one with markup for a body, and two members on them."""
    with running_broker(*FENCED, "--topic", f"{TOPIC}:4") as lockstep, ExitStack() as running:
        lines = "".join(f'{{"order": "k{number % 5}", "number": {number}}}\n' for number in range(40))
        assert lockstep("produce", TOPIC, "--key-field", "order", stdin=lines).status == 0
        assert lockstep("produce", TOPIC, "--key", "evil", "--text", stdin=f"{EVIL}\n").status == 0
        site = Site("", lockstep)
        for number in range(2):
            consume = ("consume", TOPIC, "-g", GROUP, "--from", "first", "-D", f"instanceName=member-{number}")
            site.members.append(running.enter_context(lockstep.start(*consume)))
        console = running.enter_context(lockstep.start("console", "--port", "0"))
        site.address = said(console).partition("console is at ")[2].split("/ ")[0]
        yield site


def said(process: Running) -> str:
    """The next line on stderr, waited for."""
    assert process.popen.stderr is not None
    text = b""
    while b"\n" not in text:
        ready, _, _ = select.select([process.popen.stderr], [], [], TIMEOUT_S)
        assert ready, f"no line within {TIMEOUT_S} s"
        data = os.read(process.popen.stderr.fileno(), 65536)
        assert data, f"it ended with {process.popen.wait()}: {text.decode()}"
        text += data
    return text.decode()
