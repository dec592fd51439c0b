"""The real runtime: threads for plain listeners, clocks, identities, append-only files."""

import asyncio
import gc
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from lockstep.remoting.host import runtime as runtime_module
from lockstep.remoting.host.clocks import boot_ns
from lockstep.remoting.host.runtime import AsyncioRuntime, WorkerPool
from tests.remoting.helpers import until

# What differs from loop to loop is proved on both.
pytestmark = pytest.mark.each_loop

T = TypeVar("T")


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


class Gate:
    """Jobs that wait in their threads until the test lets them go."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()
        self._open = threading.Event()

    def job(self) -> str:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self._open.wait(30)
        with self._lock:
            self.running -= 1
        return threading.current_thread().name

    def open(self) -> None:
        self._open.set()


async def run(pool: WorkerPool, fn: Callable[[], T]) -> T:
    return await pool.submit(fn)


# Threads -----------------------------------------------------------------------------------------------------


async def test_never_more_threads_than_the_number() -> None:
    """Fifty jobs on three threads: three run, the others wait, all are done in the end."""
    pool, gate = AsyncioRuntime().new_worker_pool("three", 3), Gate()
    futures = [pool.submit(gate.job) for _ in range(50)]
    await until(lambda: gate.running == 3)
    assert len(threads_of("three")) == 3
    assert all(thread.daemon for thread in threads_of("three"))
    gate.open()
    names = await asyncio.gather(*futures)
    assert gate.most == 3
    assert sorted(set(names)) == ["three-1", "three-2", "three-3"]
    pool.close()
    await until(lambda: not threads_of("three"))


async def test_no_thread_before_it_is_needed() -> None:
    """Jobs one after the other share one thread; a pool that was never used has none."""
    pool = AsyncioRuntime().new_worker_pool("lazy", 20)
    assert threads_of("lazy") == []
    for _ in range(20):
        assert await run(pool, lambda: threading.current_thread().name) == "lazy-1"
    pool.close()
    await until(lambda: not threads_of("lazy"))


async def test_what_a_job_raises_is_the_futures() -> None:
    """An exception reaches the caller, and its thread goes on to the next job."""
    pool = AsyncioRuntime().new_worker_pool("raising", 1)

    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await run(pool, fail)
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await run(pool, lambda: next(iter(())))  # no future can carry it, and the caller must not wait for ever
    assert await run(pool, lambda: 42) == 42
    pool.close()


async def test_a_cancelled_caller_does_not_stop_the_job() -> None:
    """A thread cannot be cancelled: the job runs to its end, its result is dropped, the thread is free again."""
    pool, gate = AsyncioRuntime().new_worker_pool("cancelled", 1), Gate()
    future = pool.submit(gate.job)
    await until(lambda: gate.running == 1)
    future.cancel()
    gate.open()
    assert await run(pool, lambda: "next") == "next"
    pool.close()


async def test_a_pool_grows_and_shrinks() -> None:
    """After any resize as many jobs run at once as it says, and never more threads are there than the largest."""
    pool = AsyncioRuntime().new_worker_pool("elastic", 2)
    for threads in (4, 1, 3, 0, 2):
        pool.resize(threads)
        gate = Gate()
        futures = [pool.submit(gate.job) for _ in range(6)]
        if threads == 0:
            await until(lambda: not threads_of("elastic"))
            assert gate.running == 0
            pool.resize(threads := 1)
        await until(lambda gate=gate, threads=threads: gate.running == threads)  # type: ignore[misc]
        assert len(threads_of("elastic")) <= 4
        gate.open()
        await asyncio.gather(*futures)
        assert gate.most == threads
    pool.close()
    await until(lambda: not threads_of("elastic"))


async def test_growing_back_does_not_pass_the_number() -> None:
    """Down and up again while the threads are busy: those told to leave still count until they are gone."""
    pool, gate = AsyncioRuntime().new_worker_pool("bouncing", 2), Gate()
    futures = [pool.submit(gate.job) for _ in range(2)]
    await until(lambda: gate.running == 2)
    pool.resize(1)
    pool.resize(2)
    futures += [pool.submit(gate.job) for _ in range(4)]
    assert len(threads_of("bouncing")) == 2
    gate.open()
    await asyncio.gather(*futures)
    assert gate.most == 2
    pool.close()
    await until(lambda: not threads_of("bouncing"))


async def test_close_lets_submitted_jobs_end() -> None:
    """What was handed in before `close` still runs; then the threads are gone."""
    pool, gate = AsyncioRuntime().new_worker_pool("closing", 2), Gate()
    futures = [pool.submit(gate.job) for _ in range(5)]
    pool.close()
    gate.open()
    assert len(await asyncio.gather(*futures)) == 5
    await until(lambda: not threads_of("closing"))


async def test_a_closed_pool_takes_nothing() -> None:
    """Nobody is left to run it: a caller must not wait for ever."""
    pool = AsyncioRuntime().new_worker_pool("closed", 2)
    pool.close()
    with pytest.raises(RuntimeError, match="the worker pool is closed"):
        pool.submit(str)
    assert threads_of("closed") == []


def test_a_stuck_job_keeps_no_process_alive() -> None:
    """Its thread is a daemon, and what it posts to a closed loop is dropped without a word."""
    gate = Gate()

    async def leave_it_running() -> None:
        AsyncioRuntime().new_worker_pool("stuck", 1).submit(gate.job)
        await until(lambda: gate.running == 1)

    asyncio.run(leave_it_running())
    (thread,) = threads_of("stuck")
    assert thread.daemon
    gate.open()
    thread.join(0.1)  # it may wait for its next job for ever; it must not have died of the closed loop
    assert gate.running == 0 or thread.is_alive()


# Time and identity -------------------------------------------------------------------------------------------


async def test_now_never_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's wall clock is read once; setting it back an hour changes nothing."""
    runtime = AsyncioRuntime()
    before_ms = runtime.now_ms()
    assert abs(before_ms - time.time() * 1000) < 60_000
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3_600_000_000_000)
    readings = [runtime.now_ms() for _ in range(10_000)]
    assert readings == sorted(readings)
    assert readings[0] >= before_ms
    assert type(readings[0]) is int


async def test_now_moves_within_one_turn_of_the_loop() -> None:
    """A listener that blocked the loop past its lease must see that on the very next look, on uvloop too."""
    ahead_ns = 0
    runtime = AsyncioRuntime(clock_ns=lambda: boot_ns() + ahead_ns)
    before_ms = runtime.now_ms()
    ahead_ns = 60_000_000_000
    assert runtime.now_ms() - before_ms >= 60_000


async def test_identities_are_never_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of one runtime, not of two of one process, not on a clock that stands still."""
    standing_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: standing_ns)
    runtimes = [AsyncioRuntime() for _ in range(3)]
    identities = [runtime.new_identity() for runtime in runtimes for _ in range(100)]
    assert len(set(identities)) == 300
    assert {identity.host for identity in identities} == {"127.0.0.1"}


async def test_chance_can_be_seeded() -> None:
    """Equal seeds, equal choices; without a seed they differ."""
    first, second, third = (AsyncioRuntime(seed=seed).rng.getrandbits(64) for seed in (1, 1, None))
    assert first == second != third


async def test_tasks_are_kept_until_they_are_done() -> None:
    """The loop holds tasks weakly; the runtime does not lose one to the garbage collector."""
    runtime = AsyncioRuntime()
    gate, done = asyncio.Event(), []

    async def wait() -> None:
        await gate.wait()
        done.append(1)

    for i in range(10):
        runtime.create_task(wait(), name=f"t{i}")
    await asyncio.sleep(0)
    gc.collect()
    gate.set()
    await until(lambda: len(done) == 10)
    await until(lambda: not runtime._tasks)  # a task is forgotten by a callback, after it is done


# Network and files -------------------------------------------------------------------------------------------


async def test_port_0_picks_one_and_a_taken_port_is_refused() -> None:
    """Two servers never share a port; the second is told by an OSError."""
    runtime = AsyncioRuntime()
    listening = await runtime.create_server(asyncio.Protocol, "127.0.0.1", 0)
    assert listening.port > 0
    with pytest.raises(OSError, match="in use"):
        await runtime.create_server(asyncio.Protocol, "127.0.0.1", listening.port)
    listening.close()
    await listening.wait_closed()
    with pytest.raises(OSError, match="onnect"):
        await runtime.create_connection(asyncio.Protocol, "127.0.0.1", listening.port)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has this option")
async def test_a_connection_ends_when_nothing_is_acknowledged_for_30_s() -> None:
    """A router that forgot the connection says nothing; without the option Linux waits for a quarter of an hour."""
    runtime = AsyncioRuntime()
    listening = await runtime.create_server(asyncio.Protocol, "127.0.0.1", 0)
    transport, _ = await runtime.create_connection(asyncio.Protocol, "127.0.0.1", listening.port)
    connected = transport.get_extra_info("socket")
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    transport.close()
    listening.close()
    await listening.wait_closed()


async def test_an_append_file_keeps_what_was_there(tmp_path: Path) -> None:
    """Folders are made, earlier content stays, and every write is in the file when the call returns."""
    path = tmp_path / "deep" / "er" / "trace.jsonl"
    storage = AsyncioRuntime().storage
    for text in (b"one\n", b"two\n"):
        file = storage.open_append(str(path))
        file.write(text)
        assert path.read_bytes().endswith(text)
        file.close()
    assert path.read_bytes() == b"one\ntwo\n"


async def test_a_closed_file_is_not_another_ones(tmp_path: Path) -> None:
    """Its number may belong to a new file: a second close does nothing, and a late write is an error."""
    storage = AsyncioRuntime().storage
    first = storage.open_append(str(tmp_path / "first"))
    first.close()
    second = storage.open_append(str(tmp_path / "second"))
    first.close()
    with pytest.raises(ValueError, match="closed file"):
        first.write(b"lost")
    second.write(b"kept")
    second.close()
    assert (tmp_path / "second").read_bytes() == b"kept"


def test_the_door_is_for_the_running_loop() -> None:
    """Outside a loop there is no runtime."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        runtime_module.AsyncioRuntime()


STUCK = r'"stuck listener-1" thread\n(?:  .*\n)*  File .*, in wait\n'


async def test_stacks_name_threads_and_tasks() -> None:
    """A listener that is stuck, and a task that waits, are shown with the line they stand at."""
    runtime, gate = AsyncioRuntime(), threading.Event()
    pool = runtime.new_worker_pool("stuck listener", 1)
    waiting, reached = asyncio.Event(), list[bool]()

    async def wait_for_it() -> None:
        reached.append(True)
        await waiting.wait()

    async def outer() -> None:
        await wait_for_it()

    job, task = pool.submit(gate.wait), runtime.create_task(outer(), name="a patient task")
    try:
        await until(lambda: reached and re.search(STUCK, runtime.stacks()))  # a thread begins when it can
        text = runtime.stacks()
        assert '"a patient task" task' in text
        assert text.index("await wait_for_it()") < text.index("await waiting.wait()")
    finally:
        gate.set()
        waiting.set()
        await job
        await task
        pool.close()
