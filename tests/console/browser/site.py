"""A console as a process, over a broker with messages and two members, for a browser."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.commands import TIMEOUT_S, Lockstep, Running, running_broker

__all__ = ["GROUP", "POPS", "TIMEOUT_MS", "TOPIC", "Site", "running_site"]

TOPIC, GROUP = "orders", "shop"
POPS = "pops"  # a group whose member has messages, and works on them
TIMEOUT_MS = TIMEOUT_S * 1000
EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
# A member asks again in 1 s, not in 20 s, when a busy machine lets a lock's answer come too late for it.
AGAIN_SOON = "rocketmq.client.rebalance.waitInterval=1000"
FENCED = ("--lock-mode", "fenced", "--lock-delay-ms", "500", "--lock-delay-legacy-ms", "500")


@dataclass
class Site:
    """
    Args:
        address: Of the first page, without a slash at its end.
        folder: Of the members' traces.
        members: By instance name.
    """

    address: str
    lockstep: Lockstep
    folder: Path
    running: ExitStack
    members: dict[str, Running] = field(default_factory=dict)

    def join(self) -> str:
        """One more member of the group, with a trace. Returns its instance name."""
        name = f"member-{len(self.members)}"
        trace = str(self.folder / f"{name}.jsonl")
        consume = ("consume", TOPIC, "-g", GROUP, "--from", "first", "--trace", trace, "-D", f"instanceName={name}")
        started = self.lockstep.start(*consume, "-D", AGAIN_SOON)
        self.members[name] = self.running.enter_context(started)
        return name

    def records(self, event: str) -> list[dict[str, Any]]:
        """The records of this event in all traces, for queues of the topic."""
        lines = [line for path in sorted(self.folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
        found = [json.loads(line) for line in lines if line.endswith("}")]  # a killed member may leave half a line
        return [record for record in found if record["event"] == event and record.get("topic") == TOPIC]


@contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """Four queues, messages of five keys, one with markup for a body, two members on them, and one that pops."""
    with running_broker(*FENCED, "--topic", f"{TOPIC}:4") as lockstep, ExitStack() as running:
        lines = "".join(f'{{"order": "k{number % 5}", "number": {number}}}\n' for number in range(40))
        assert lockstep("produce", TOPIC, "--key-field", "order", stdin=lines).status == 0
        assert lockstep("produce", TOPIC, "--key", "evil", "--text", stdin=f"{EVIL}\n").status == 0
        site = Site("", lockstep, folder, running)
        site.join()
        site.join()
        pops = ("consume", TOPIC, "-g", POPS, "--pop", "--from", "first", "--work", "5m")
        popping = running.enter_context(lockstep.start(*pops))
        running.callback(popping.popen.kill)
        console = running.enter_context(lockstep.start("console", "--port", "0"))
        site.address = console.error_line().partition("console is at ")[2].split("/ ")[0]
        yield site
