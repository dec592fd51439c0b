"""What signatures, permissions and TLS cost: sends with each, beside plain sends, in turns; part of `make bench`.

    python -m scripts.bench.protection [--rounds 5] [--seconds 1]

A broker for each protection runs as a process, and one client sends to each in turn. `rate` is that of sends and
`ratio` that rate of the plain one in the same round, both medians. `broker` and `client` are the processor time of a
send in microseconds, on which other work of the machine has little influence.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import trustme
import uvloop
from rich.console import Console
from rich.table import Table

from lockstep.client import Message, Producer, ProducerConfig
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.signature import Credentials
from lockstep.remoting.tls.options import TlsOptions
from lockstep.testing.process import BrokerProcess
from scripts.bench import cases
from scripts.bench.fence_cost import processor_ns

__all__ = ["NAME", "measure_protection", "show_protection"]

NAME: Final = "protection"
TOPIC, GROUP, BODY = "BenchProtected", "BenchProducer", bytes(128)
ACCOUNT: Final = Credentials("bench-account", "bench-secret")
RULES: Final = f"""\
accounts:
- accessKey: {ACCOUNT.access_key}
  secretKey: {ACCOUNT.secret_key}
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [{GROUP}=PUB|SUB]
"""
KINDS: Final = ("plain", "signed", "tls", "signed, tls")
ENCODINGS: Final = {"": SerializeType.MSGPACK, " json": SerializeType.JSON}
IN_FLIGHT: Final = (1, 64)


class Sent(NamedTuple):
    """One measurement. Times are of processors, in microseconds a send."""

    rate: float
    broker_us: float
    client_us: float


class _Side:
    """A broker with one kind of protection, and how a client speaks to it."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        signed, tls = "signed" in kind, "tls" in kind
        options: list[str] = []
        if signed:
            options += ["--acl", str(folder / "plain_acl.yml"), "--acl-checks", "strict"]
        if tls:
            options += ["--tls", "enforcing", "--tls-cert", str(folder / "server.pem")]
        self._credentials = ACCOUNT if signed else None
        self._tls = TlsOptions(ca=str(folder / "ca.pem")) if tls else None
        self.broker = stack.enter_context(BrokerProcess("--log-level=warning", f"--topic={TOPIC}:4", *options))

    async def send(self, encoding: SerializeType, in_flight: int, seconds: float) -> Sent:
        """Keyed sends, which keep their order, for some time."""
        keys = itertools.cycle([f"key-{i}" for i in range(64)])
        config = ProducerConfig(serialize_type=encoding)
        name_server = self.broker.name_server
        async with Producer(
            GROUP, name_server=name_server, config=config, credentials=self._credentials, tls=self._tls
        ) as producer:

            async def send() -> None:
                await producer.send(Message(TOPIC, BODY), sharding_key=next(keys))

            await send()
            broker_ns, client_ns = processor_ns(self.broker.pid), time.process_time_ns()
            sample = await cases.latencies(send, seconds, in_flight)
            count = len(sample.latencies_ns)
            broker_us = (processor_ns(self.broker.pid) - broker_ns) / count / 1000
            return Sent(sample.rate, broker_us, (time.process_time_ns() - client_ns) / count / 1000)


def _make_files(folder: Path) -> None:
    (folder / "plain_acl.yml").write_text(RULES, encoding="utf-8")
    signer = trustme.CA()
    signer.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    signer.cert_pem.write_to_path(str(folder / "ca.pem"))


async def measure_protection(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Medians by case: the kind of protection, the header encoding, and how many sends are in flight."""
    found: dict[str, list[Sent]] = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        _make_files(folder)
        sides = {kind: _Side(kind, folder, stack) for kind in KINDS}
        for _ in range(rounds):
            for suffix, encoding in ENCODINGS.items():
                for in_flight in IN_FLIGHT:
                    for kind, side in sides.items():
                        sent = await side.send(encoding, in_flight, seconds)
                        found.setdefault(f"{kind}{suffix} {in_flight}", []).append(sent)
    return {name: _figures(name, found) for name in found}


def _figures(name: str, found: Mapping[str, list[Sent]]) -> dict[str, float]:
    kind = next(kind for kind in reversed(KINDS) if name.startswith(kind))
    ours, plain = found[name], found["plain" + name.removeprefix(kind)]
    return {
        "rate": round(statistics.median(sent.rate for sent in ours), 1),
        "ratio": round(statistics.median(one.rate / other.rate for one, other in zip(ours, plain, strict=True)), 3),
        "broker_us": round(statistics.median(sent.broker_us for sent in ours), 1),
        "client_us": round(statistics.median(sent.client_us for sent in ours), 1),
    }


def show_protection(figures: Mapping[str, Mapping[str, float]], console: Console) -> None:
    table = Table(title="sends under ACL and TLS (medians)", caption="rates a second; processor time of a send in us")
    for column in ("case, in flight", "rate", "of plain", "broker", "client"):
        table.add_column(column, justify="left" if column.startswith("case") else "right")
    for name, found in figures.items():
        times = (f"{found['broker_us']:.1f}", f"{found['client_us']:.1f}")
        table.add_row(name, f"{found['rate']:,.0f}", f"{found['ratio']:.2f}", *times)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    given = parser.parse_args()
    show_protection(uvloop.run(measure_protection(given.rounds, given.seconds)), Console())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
