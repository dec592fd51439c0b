"""`make bench APACHE=5`: pops and their acks beside pulls and their commits, at our broker and Apache's 5.5.0.

    python -m scripts.bench.apache.pop [--without-apache]

One raw client reads one queue, 32 messages a time, with one step under way; an acknowledgement is a request of its own,
or all 32 are in one. All brokers are measured in turns. Compare CPU time of the broker a message: the client takes a
part of the rates. SMALL=1 has fewer and shorter rounds. All samples are in build/bench.json, under `pop`.
"""

import asyncio
import base64
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.receipts import ORDERED, Receipt, TopicKind, parse_spans
from scripts.bench import cases
from scripts.bench.apache.figures import Case, Measure, Sample, Stopwatch, in_turns
from scripts.bench.apache.raw import PULL_COUNT, PULL_MESSAGES, PULL_TOPIC, RawClient, frame, pull_frames
from scripts.bench.apache.servers import APACHE5, FENCED, FILES, TITLES, Contender, served
from scripts.bench.command import SMALL, keep, parser_of, progress, wide_console

__all__ = ["main"]

BROKER: Final = "broker-a"
INVISIBLE_MS: Final = 60_000
WARM_UP_S: Final = 5.0  # of each case at Apache's broker
NOTHING_LEFT: Final = 210
_groups = itertools.count()


class Step(NamedTuple):
    """What is done with 32 messages."""

    work: str
    is_pop: bool
    in_order: bool = False
    acks_together: bool = False


STEPS: Final = (
    Step("pull, commit", False),
    Step("pop, 32 acks", True),
    Step("pop, one batch of acks", True, acks_together=True),
    Step("in order: pop, 32 acks", True, in_order=True),
    Step("in order: pop, one batch of acks", True, in_order=True, acks_together=True),
)


class Reader:
    """Reads one queue again and again: a pull from its start, a pop under the name of another group, `group`.

    Raises:
        RuntimeError: By `step`, when an answer is not a success.
    """

    def __init__(self, client: RawClient, step: Step) -> None:
        self._client = client
        self._step = step
        self._pulls = itertools.cycle(enumerate(pull_frames(), 1))
        self.group = ""
        self._opaque = itertools.count(1)

    def step(self) -> None:
        if self._step.is_pop:
            self._client.ask(self._acks(*self._popped()))
            return
        number, pull = next(self._pulls)
        self._client.ask([pull])
        fields = {"consumerGroup": "BenchRaw", "topic": PULL_TOPIC, "queueId": 0, "commitOffset": number * PULL_COUNT}
        self._client.ask([frame(RequestCode.UPDATE_CONSUMER_OFFSET, next(self._opaque), fields)])

    def _popped(self) -> tuple[Mapping[str, str], int, Sequence[int]]:
        """The fields of the answer, the first offset and all offsets."""
        while True:
            now_ms = time.time_ns() // 1_000_000
            fields = {"consumerGroup": self.group, "topic": PULL_TOPIC, "queueId": 0, "maxMsgNums": PULL_COUNT,
                      "invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": now_ms, "initMode": 0, "expType": "TAG",
                      "exp": "*", "order": json.dumps(self._step.in_order)}  # fmt: skip
            found = None
            if self.group:
                request = frame(RequestCode.POP_MESSAGE, next(self._opaque), fields)
                (found,) = self._client.ask([request], or_code=NOTHING_LEFT)
            if found is not None and found["code"] == 0:
                popped = found["extFields"]
                (span,) = parse_spans(popped["startOffsetInfo"], popped["msgOffsetInfo"])
                return popped, span.start_offset, span.offsets
            self.group = f"BenchPop{next(_groups)}"

    def _acks(self, popped: Mapping[str, str], start: int, offsets: Sequence[int]) -> list[bytes]:
        pop_ms, revive = int(popped["popTime"]), int(popped["reviveQid"])
        assert (revive == ORDERED) is self._step.in_order
        if self._step.acks_together:
            bits = sum(1 << (offset - start) for offset in offsets)
            data = base64.b64encode(bits.to_bytes(-(-bits.bit_length() // 8), "little")).decode()
            ack = {"c": self.group, "t": PULL_TOPIC, "r": "0", "so": start, "q": 0, "rq": revive, "pt": pop_ms,
                   "it": INVISIBLE_MS, "b": data}  # fmt: skip
            body = json.dumps({"brokerName": BROKER, "acks": [ack]}).encode()
            return [frame(RequestCode.BATCH_ACK_MESSAGE, next(self._opaque), None, body)]
        one = Receipt(start, pop_ms, INVISIBLE_MS, revive, TopicKind.TOPIC, BROKER, 0, start)
        fields = {"consumerGroup": self.group, "topic": PULL_TOPIC, "queueId": 0}
        return [
            frame(RequestCode.ACK_MESSAGE, next(self._opaque),
                  fields | {"extraInfo": one._replace(queue_offset=offset).encode(), "offset": offset})
            for offset in offsets
        ]  # fmt: skip


def measure(contender: Contender, step: Step, seconds: float) -> Sample:
    """One round of one step. Raises RuntimeError, OSError."""
    client = RawClient(contender.server.broker)
    try:
        reader = Reader(client, step)
        reader.step()
        watch, steps, end = Stopwatch(contender.server.pids[0], os.getpid()), 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            reader.step()
            steps += 1
        return watch.sample(steps * PULL_COUNT)
    finally:
        client.close()


def show(found: Mapping[str, Case], keys: Sequence[str], console: Console) -> None:
    """Print the medians, and what a step costs a broker beside its pull."""
    table = Table(title="messages a second; the broker's CPU time for one, in us, and in pulls", title_justify="left")
    table.add_column("32 messages")
    for key in keys:
        for name in (TITLES[key], "us", "pulls"):
            table.add_column(name, justify="right")
    for step in STEPS:
        table.add_row(step.work, *itertools.chain.from_iterable(_cells(found, step, key) for key in keys))
    console.print(table)


def _cells(found: Mapping[str, Case], step: Step, key: str) -> Iterator[str]:
    case, pull = found[step.work], found[STEPS[0].work]
    yield f"{case.median(key):,.0f}"
    yield f"{case.median(key, 'broker_us'):.2f}"
    yield f"{pull.cpu_ratio(key, case, key):.2f}"


def main() -> int:
    parser = parser_of(__doc__, rounds=3 if SMALL else 5)
    parser.add_argument("--without-apache", action="store_true", help="our broker alone: no Java is needed")
    parser.add_argument("--seconds", type=float, default=0.5 if SMALL else 1.0, help="of each measurement")
    given = parser.parse_args()
    console = wide_console()
    keys = (FILES, FENCED) if given.without_apache else (APACHE5, FILES, FENCED)
    topics = ((PULL_TOPIC, 4),)
    with tempfile.TemporaryDirectory(prefix="bench-pop-") as folder, served(Path(folder), keys, topics) as contenders:
        for one in contenders.values():
            asyncio.run(cases.preload(one.server.name_server, PULL_TOPIC, PULL_MESSAGES, 1))
            for step in STEPS:
                measure(one, step, (WARM_UP_S if one.key == APACHE5 else 0.5) * given.seconds)
        runs: dict[str, dict[str, Measure]] = {
            step.work: {key: partial(measure, one, step, given.seconds) for key, one in contenders.items()}
            for step in STEPS
        }
        with progress(console) as tell:
            found = in_turns(runs, given.rounds, tell)
    show(found, keys, console)
    keep({"pop": {work: case.to_json() for work, case in found.items()}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
