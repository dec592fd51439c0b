"""Requests a second of a peer: token buckets with given times."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.limits.rates import RequestRates
from tests.broker.helpers import NOW_MS


def served(rates: RequestRates, peer: str, now_ms: int, count: int, *, spared: bool = False) -> int:
    return sum(rates.take(peer, now_ms, spared=spared) for _ in range(count))


def test_a_second_may_come_at_once() -> None:
    """Then one request each tenth of a second, for 10 a second; a peer that waited has one second's, not more."""
    rates = RequestRates(10, 100)
    assert served(rates, "a", NOW_MS, 50) == 10
    assert [served(rates, "a", NOW_MS + after_ms, 5) for after_ms in (99, 100, 199, 200, 450)] == [0, 1, 0, 1, 2]
    assert served(rates, "a", NOW_MS + 3_600_000, 50) == 10


def test_peers_do_not_share() -> None:
    """One that sends too much takes nothing from another."""
    rates = RequestRates(3, 100)
    assert [served(rates, peer, NOW_MS, 9) for peer in ("a", "b")] == [3, 3]


def test_spared_requests_have_their_own_bucket() -> None:
    """A flood of other requests refuses none of them, and a flood of them is limited too."""
    rates = RequestRates(3, 100)
    assert served(rates, "a", NOW_MS, 9) == 3
    assert served(rates, "a", NOW_MS, 9, spared=True) == 3


def test_the_table_is_bounded() -> None:
    """Peers above its size share one bucket; idle ones are forgotten when their buckets are full again."""
    rates = RequestRates(2, 5)
    assert sum(served(rates, f"peer{number}", NOW_MS, 1) for number in range(1000)) == 5 + 2
    assert len(rates) == 6
    rates.forget_idle(NOW_MS + 499)
    assert len(rates) == 6
    rates.forget_idle(NOW_MS + 500)
    assert len(rates) == 1, "the shared bucket is not full yet"
    rates.forget_idle(NOW_MS + 1000)
    assert len(rates) == 0


@given(
    per_second=st.integers(1, 50),
    gaps_ms=st.lists(st.integers(0, 400), min_size=1, max_size=200),
    forgetful=st.booleans(),
)
def test_no_window_has_more_than_it_may(per_second: int, gaps_ms: list[int], forgetful: bool) -> None:
    """In any time of t seconds a peer is served at most (1 + t) times a second's requests, and never too few: a
    request is refused only if the second before it had its number. Forgetting full buckets changes nothing."""
    rates, now_ms, times = RequestRates(per_second, 10), NOW_MS, []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        if forgetful:
            rates.forget_idle(now_ms)
        if rates.take("a", now_ms):
            times.append(now_ms)
        else:
            assert sum(now_ms - at_ms < 1000 for at_ms in times) >= per_second - 1
    for first, since_ms in enumerate(times):
        for last, until_ms in enumerate(times[first:], first):
            assert (last - first) * 1000 <= (1000 + until_ms - since_ms) * per_second
