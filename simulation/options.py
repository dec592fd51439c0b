"""The options of a simulation: everything that determines a run besides its seed and its code."""

from dataclasses import dataclass

__all__ = ["SimulationOptions"]


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Two runs with equal options, seed and code have equal traces."""

    epoch_ms: int = 1_700_000_000_000  # the wall clock of every host at the start

    latency_us_min: int = 100  # one way, drawn for each write
    latency_us_max: int = 2_000
    loopback_us_max: int = 50  # a host to itself, from 0
    bytes_per_s: int | None = None  # of each link between two hosts; None: without a limit
    split_percent: int = 25  # of writes that arrive in two parts
    read_bytes_max: int = 262_144  # in one data_received, as asyncio reads
    window_bytes: int = 131_072  # in flight and unread in one direction, as in kernel buffers
    connect_timeout_ms: int = 127_000  # behind a partition: Linux's six retries
    retransmit_ms: int = 924_600  # until TCP gives up bytes that nobody acknowledges: Linux's tcp_retries2

    shuffle_us: int = 0  # what is due within so long happens at once, in an order of the seed; 0: as it was scheduled
    instant_steps_max: int = 1_000_000  # callbacks at one instant
    drain_ms: int = 100  # after the scenario, for closed connections and cancelled tasks to end
    debug: bool = False  # asyncio's debug mode: tasks and futures record where they were created
    trace_lines_max: int = 100_000  # kept for reading; the hash covers all lines

    def __post_init__(self) -> None:
        assert 0 <= self.latency_us_min <= self.latency_us_max
        assert self.loopback_us_max >= 0
        assert self.shuffle_us >= 0
        assert self.bytes_per_s is None or self.bytes_per_s > 0
        assert 0 <= self.split_percent <= 100
        assert self.read_bytes_max > 0
        assert self.window_bytes > 0
        # A close and its answer must fit into the drain, or closed connections would count as leaks.
        assert self.drain_ms * 1000 >= 4 * self.latency_us_max
