"""The clock of a simulated machine: it counts sleep, and may run fast or slow against virtual time."""

from bisect import bisect_right

__all__ = ["Clock"]

_MILLION = 1_000_000


class Clock:
    """All generations of a host share it. `is_off` is False as long as it shows virtual time."""

    def __init__(self) -> None:
        self.is_off = False
        self.ppm = 0
        self._rates: list[tuple[int, int, int]] = [(0, 0, 0)]  # (since: of this clock, of virtual time; ppm)

    def set_ppm(self, ppm: int, now_ns: int) -> None:
        """From `now_ns` of virtual time on a second of this clock is shorter by `ppm` millionths of a second."""
        assert ppm > -_MILLION
        self._rates.append((self.read_ns(now_ns), now_ns, ppm))
        self.ppm = ppm
        self.is_off = True

    def read_ns(self, now_ns: int) -> int:
        """What the clock shows."""
        since_ns, virtual_ns, ppm = self._rates[-1]
        passed_ns = now_ns - virtual_ns
        return since_ns + passed_ns + passed_ns * ppm // _MILLION

    def virtual_ns(self, shown_ns: int) -> int:
        """The virtual time at which the clock showed this, or will at its present rate."""
        place = bisect_right(self._rates, (shown_ns, -1, 0)) if shown_ns < self._rates[-1][0] else len(self._rates)
        since_ns, virtual_ns, ppm = self._rates[max(place - 1, 0)]
        return virtual_ns + -(-(shown_ns - since_ns) * _MILLION // (_MILLION + ppm))

    def virtual_duration_ns(self, duration_ns: int) -> int:
        """How much virtual time a duration of this clock takes."""
        return -(-duration_ns * _MILLION // (_MILLION + self.ppm))
