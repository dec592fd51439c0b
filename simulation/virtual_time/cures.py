"""What the error of a refused call says: why it is refused, and what to call instead.

Code of Lockstep reads of the Runtime. Whoever writes a listener or a story does not know that word.
"""

from typing import Final, NamedTuple

__all__ = [
    "CLOCK",
    "CURES_OF_MODULES",
    "DISK",
    "DRIVE",
    "IDENTITY",
    "NETWORK",
    "PROCESSES",
    "RANDOM",
    "SIGNALS",
    "SLEEP",
    "TASKS",
    "THREADS",
    "WAITS",
    "Cure",
]


class Cure(NamedTuple):
    """For code of Lockstep, and for others, whose text says why, too."""

    ours: str
    others: str


_EQUAL = "each run of a seed must be the same"
_SIMULATED = "time is simulated"
CLOCK: Final = Cure(
    "ask Runtime.now_ms() or monotonic_ns()",
    f"{_SIMULATED}; use message.store_timestamp, or in async code asyncio.get_running_loop().time()",
)
SLEEP: Final = Cure(
    "await asyncio.sleep()",
    f"{_SIMULATED}; await asyncio.sleep(), or in a plain listener leave it out and give --work 500ms",
)
RANDOM: Final = Cure("use Runtime.rng", f"{_EQUAL}; use a random.Random with a seed")
IDENTITY: Final = Cure("use Runtime.new_identity()", f"{_EQUAL}; use message.msg_id, or count")
WAITS: Final = Cure(
    "no other thread runs; await an asyncio.Event",
    "no other thread runs; await an asyncio.Event, Queue or sleep(), and in a plain listener do not wait",
)
THREADS: Final = Cure("use Runtime.new_worker_pool()", "threads do not run here; call the function itself")
PROCESSES: Final = Cure(
    "a process is a host of the simulation",
    "other processes do not run here; call an object that does the work in memory",
)
NETWORK: Final = Cure(
    "use Runtime.create_connection() and create_server()",
    "the network is simulated; call an object that keeps its data in memory",
)
DISK: Final = Cure("use Runtime.storage", "")  # others may read files
DRIVE: Final = Cure("simulate() runs the loop", "the loop runs already; write an async def, and await the coroutine")
SIGNALS: Final = Cure("only __main__ handles signals", "a simulated process gets no signals; leave it out")
TASKS: Final = Cure("tasks of the simulation hash by number", "its tasks are its own; leave it out")
_FILES: Final = Cure(
    "choose the name yourself",
    f"{_EQUAL}, and its name is random; choose the name yourself, or keep the data in memory",
)
# What a module of the standard library is there for, whatever function deep inside of it was refused.
CURES_OF_MODULES: Final = {
    "asyncio.runners": DRIVE,
    "concurrent.futures.process": PROCESSES,
    "concurrent.futures": THREADS,
    "multiprocessing": PROCESSES,
    "tempfile": _FILES,
}
