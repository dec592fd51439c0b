"""The file store compared with the store in memory and with the disk itself, and its recovery after a crash."""

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lockstep.client import Message, Producer
from lockstep.protocol.codes import SerializeType
from lockstep.testing.process import BrokerProcess
from scripts.bench import cases

__all__ = ["ASYNC_FLOOR", "NAMES", "fsyncs", "measure_store", "show_store"]

ASYNC_FLOOR = 0.8  # processor time of a send in memory, divided by that with --flush async
NAMES = ("store_sends", "store_recovery")
IN_FLIGHT = 64
QUIET = ("--log-level", "warning")
FSYNC_BYTES = 16 * 1024
PLAIN_WRITES = 50_000
BODY_BYTES = 1024
_MSGPACK = SerializeType.MSGPACK

Figures = dict[str, float]


async def measure_store(folder: Path, rounds: int, seconds: float, megabytes: int, only: tuple[str, ...]) -> Figures:
    """`megabytes`: how much is written, and recovered after the broker was killed."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        if not only or "store_sends" in only:
            figures |= await _sends(Path(scratch), rounds, seconds)
        if not only or "store_recovery" in only:
            figures |= await _recovery(Path(scratch), megabytes)
    return figures


# Sends ------------------------------------------------------------------------------------------------------------


async def _sends(scratch: Path, rounds: int, seconds: float) -> Figures:
    """Sends with 64 in flight: in memory, in files, and in files with each message flushed; in turns, medians."""
    rates: dict[str, list[float]] = {"memory": [], "async": [], "sync": []}
    cpu_us: dict[str, list[float]] = {name: [] for name in rates}
    per_fsync, disk, plain_us = [], [], []
    for turn in range(rounds):
        for name in rates:
            data_dir = ("--data-dir", str(scratch / f"{name}-{turn}"), "--flush", name)
            with BrokerProcess(*QUIET, *cases.TOPICS, *(data_dir if name != "memory" else ())) as broker:
                rate, cpu = await _rate(broker, seconds)
                rates[name].append(rate)
                cpu_us[name].append(cpu)
                if name == "sync":
                    per_fsync.append(await _messages_per_sync(broker))
                elif name == "async":
                    plain_us.append(_plain_write_us(scratch / "plain", await _stored_bytes(broker)))
        disk.append(fsyncs(scratch / "fsync", seconds, FSYNC_BYTES))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    spent = {f"{name}_cpu_us": round(statistics.median(found), 1) for name, found in cpu_us.items()}
    return {
        "memory_rate": round(medians["memory"]),
        "async_rate": round(medians["async"]),
        "async_rate_ratio": round(_ratio(rates["async"], rates["memory"]), 3),
        **spent,
        "async_ratio": round(_ratio(cpu_us["memory"], cpu_us["async"]), 3),
        "plain_write_us": round(statistics.median(plain_us), 2),
        "sync_rate": round(medians["sync"]),
        "messages_per_fsync": round(statistics.median(per_fsync), 1),
        "disk_fsync_rate": round(statistics.median(disk)),
    }


def _ratio(above: list[float], below: list[float]) -> float:
    """The median over turns: other work on the machine is nearly the same within one turn."""
    return statistics.median([one / other for one, other in zip(above, below, strict=True)])


async def _rate(broker: BrokerProcess, seconds: float) -> tuple[float, float]:
    """(sends a second, the broker's processor time of one in microseconds)."""
    client, send = await cases.CALLS["send_64"].open(broker.name_server, _MSGPACK, None)
    try:
        await cases.latencies(send, seconds / 2, IN_FLIGHT)  # not measured: one-time work, such as creating files
        began_s = _processor_s(broker)
        sample = await cases.latencies(send, seconds, IN_FLIGHT)
        return sample.rate, (_processor_s(broker) - began_s) / len(sample.latencies_ns) * 1e6
    finally:
        await client.shutdown()


def _processor_s(broker: BrokerProcess) -> float:
    """Processor seconds of all its threads, also in the kernel. Raises OSError without /proc."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


async def _stored_bytes(broker: BrokerProcess) -> int:
    """Mean size of a message in the log."""
    table = await cases.runtime_info(broker.name_server, broker.address)
    return int(table["commitLogMaxOffset"]) // max(1, int(table["putMessageTimesTotal"]))


def _plain_write_us(path: Path, size_bytes: int) -> float:
    """Processor time of a plain write of so many bytes."""
    data = os.urandom(size_bytes)
    with path.open("wb", buffering=0) as file:
        began_ns = time.process_time_ns()
        for at in range(0, PLAIN_WRITES * size_bytes, size_bytes):
            os.pwrite(file.fileno(), data, at)
        return (time.process_time_ns() - began_ns) / PLAIN_WRITES / 1000


async def _messages_per_sync(broker: BrokerProcess) -> float:
    table = await cases.runtime_info(broker.name_server, broker.address)
    return int(table["putMessageTimesTotal"]) / max(1, int(table["commitLogSyncCount"]))


def fsyncs(path: Path, seconds: float, size_bytes: int) -> float:
    """Fsyncs a second of the disk itself, each after so many bytes."""
    data, count = os.urandom(size_bytes), 0
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            file.write(data)
            os.fsync(file.fileno())
            count += 1
        return count / (time.perf_counter() - began)


# After a crash ----------------------------------------------------------------------------------------------------


async def _recovery(scratch: Path, megabytes: int) -> Figures:
    """Kill a broker with so much in its log, start it again, then pull from a cold queue."""
    data_dir = scratch / "recovery"
    # Without a checkpoint the next start reads the whole log.
    options = ("--data-dir", str(data_dir), "-D", "checkpoint_interval_ms=86400000", f"--topic={cases.PULL_TOPIC}:1")
    with BrokerProcess(*QUIET, *options) as broker:
        await _fill(broker, megabytes)
        broker.kill()
    began = time.perf_counter()
    with BrokerProcess(*QUIET, *options) as broker:
        recovery_s = time.perf_counter() - began
        _forget_cached(data_dir)
        client, pull = await cases.CALLS["pull_32"].open(broker.name_server, _MSGPACK, None)
        try:
            cold = await cases.latencies(pull, 1.0, 1, cases.PULL_COUNT)
        finally:
            await client.shutdown()
    p50_us = cold.latencies_ns[len(cold.latencies_ns) // 2] / 1000
    size = sum(path.stat().st_blocks * 512 for path in (data_dir / "commitlog").iterdir()) / 1e6
    return {
        "recovered_mb": round(size),
        "recovery_s": round(recovery_s, 2),
        "cold_pull_rate": round(cold.rate),
        "cold_pull_p50_us": round(p50_us),
    }


async def _fill(broker: BrokerProcess, megabytes: int) -> None:
    async with Producer("BenchFill", name_server=broker.name_server) as producer:
        (queue,) = await producer.queues(cases.PULL_TOPIC)
        batch = [Message(cases.PULL_TOPIC, os.urandom(BODY_BYTES), sharding_key="k") for _ in range(100)]
        for _ in range(megabytes * 1_000_000 // (len(batch) * BODY_BYTES) // 4 + 1):
            await asyncio.gather(*[producer.send_batch(batch, queue=queue) for _ in range(4)])


def _forget_cached(data_dir: Path) -> None:
    """Drop the system's page cache of the log, so that reads go to the disk."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in (data_dir / "commitlog").iterdir():
        with path.open("rb") as file, suppress(OSError):
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# Showing ----------------------------------------------------------------------------------------------------------


def show_store(figures: Figures, console: Console) -> None:
    table = Table(title="The file store (medians)")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for what, text in _rows(figures):
        table.add_row(what, text)
    console.print(table)


def _rows(figures: Figures) -> list[tuple[str, str]]:
    rows = []
    if "async_rate" in figures:
        verdict = "ok" if figures["async_ratio"] >= ASYNC_FLOOR else "MISSED"
        rows += [
            (f"sends/s, {IN_FLIGHT} in flight, in memory", f"{figures['memory_rate']:,.0f}"),
            ("the same, --flush async", f"{figures['async_rate']:,.0f}"),
            ("  of the rate in memory, on this machine as it is", f"{figures['async_rate_ratio']:.2f}"),
            ("processor time of a send, in memory", f"{figures['memory_cpu_us']:.1f} us"),
            ("the same, --flush async", f"{figures['async_cpu_us']:.1f} us"),
            ("a plain write of the same bytes", f"{figures['plain_write_us']:.1f} us"),
            (f"  in memory, of --flush async (floor {ASYNC_FLOOR})", f"{figures['async_ratio']:.2f} {verdict}"),
            ("the same, --flush sync", f"{figures['sync_rate']:,.0f}"),
            ("  messages an fsync", f"{figures['messages_per_fsync']:.1f}"),
            ("  fsyncs/s of the disk itself", f"{figures['disk_fsync_rate']:,.0f}"),
        ]
    if "recovery_s" in figures:
        rows += [
            (f"recovery of {figures['recovered_mb']:,.0f} MB after a kill", f"{figures['recovery_s']:.2f} s"),
            ("messages/s pulled that are not in memory", f"{figures['cold_pull_rate']:,.0f}"),
            ("  a pull of 32, p50", f"{figures['cold_pull_p50_us']:,.0f} us"),
        ]
    return rows
