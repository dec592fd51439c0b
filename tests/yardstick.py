"""How slow this machine is here and now: what others do on it makes the same work dearer, also in processor time."""

import time

__all__ = ["slowness", "yardstick_s"]

_ROUNDS = 4
_QUIET_S = 0.0235  # what it costs on the machine of CONTRIBUTING's figures when nobody else works there


def yardstick_s() -> float:
    """What a fixed piece of Python costs, in processor seconds."""
    began = time.process_time()
    for _ in range(_ROUNDS):
        "".join([f"{number:06}" for number in range(20_000)])
    return time.process_time() - began


def slowness() -> float:
    """How many times as dear as on a quiet machine work is now: 2 on a crowded one, at least 1."""
    return max(yardstick_s() / _QUIET_S, 1.0)
