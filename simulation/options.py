"""The knobs of one simulation: everything that shapes a run besides its seed and its code."""

from dataclasses import dataclass

__all__ = ["SimulationOptions"]


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Two runs with equal options, seed and code are equal to the byte."""

    epoch_ms: int = 1_700_000_000_000  # what every host's wall clock says at the start

    latency_us_min: int = 100  # one way, drawn anew for each write
    latency_us_max: int = 2_000
    loopback_us_max: int = 50  # a host to itself, from 0
    split_percent: int = 25  # of arrivals that bring a part of the bytes first and the others later
    read_bytes_max: int = 262_144  # in one data_received, as asyncio reads
    window_bytes: int = 131_072  # on the wire and unread in one direction: what kernels would hold
    connect_timeout_ms: int = 127_000  # into a partition: Linux's six retries

    instant_steps_max: int = 1_000_000  # callbacks that may run before time must move
    drain_ms: int = 100  # after the scenario, for closed connections and cancelled tasks to end
    debug: bool = False  # asyncio's debug mode: tasks and futures remember where they were made
    trace_lines_max: int = 100_000  # kept to be read; the hash covers all

    def __post_init__(self) -> None:
        assert 0 <= self.latency_us_min <= self.latency_us_max
        assert self.loopback_us_max >= 0
        assert 0 <= self.split_percent <= 100
        assert self.read_bytes_max > 0
        assert self.window_bytes > 0
        # A close and its answer must fit, or every scenario that closes its connections would seem to leak them.
        assert self.drain_ms * 1000 >= 4 * self.latency_us_max
