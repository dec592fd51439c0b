"""Copies of requests."""

import pytest

from lockstep.broker.acl.errors import AccessDenied
from lockstep.broker.acl.replay import ReplayWindow


def test_numbers_grow() -> None:
    """Of each connection a number counts once, and later ones are higher."""
    window = ReplayWindow(1000)
    for text in ("0-a-1", "0-a-2", "0-b-1", "0-a-7"):
        window.check("account1", text, 0)
    window.check("account2", "0-a-1", 0)
    for text in ("0-a-7", "0-a-3", "0-b-1"):
        with pytest.raises(AccessDenied, match="A copy"):
            window.check("account1", text, 0)


def test_time() -> None:
    """A request that names a time outside the window is refused, so its connection may be forgotten."""
    window = ReplayWindow(1000)
    window.check("account1", "6000-a-1", 5000)
    for now_ms in (7001, 4999):
        with pytest.raises(AccessDenied, match="from the broker's time; at most 1000 ms"):
            window.check("account1", "6000-b-1", now_ms)
    window.check("account1", "8000-c-1", 8000)  # connection a is forgotten by now
    with pytest.raises(AccessDenied, match="from the broker's time"):
        window.check("account1", "6000-a-1", 8000)


def test_a_copy_is_known_for_as_long_as_it_is_in_time() -> None:
    """A request may name a time one window ahead, so it can be copied for two windows; the last moment counts."""
    window = ReplayWindow(1000)
    window.check("account1", "6000-a-1", 5000)
    for now_ms in (5001, 6000, 6999, 7000):
        with pytest.raises(AccessDenied, match="A copy"):
            window.check("account1", "6000-a-1", now_ms)


@pytest.mark.parametrize("text", ["", "1", "1-2", "x-a-1", "1-a-x", "1-a-1-1", "0-" + "a" * 77 + "-1"])
def test_nonsense(text: str) -> None:
    """A text of another form is refused."""
    with pytest.raises(AccessDenied, match="Bad request number"):
        ReplayWindow(1000).check("account1", text, 0)


def test_bound() -> None:
    """Only so many connections are remembered; new ones are refused until old ones are forgotten."""
    window = ReplayWindow(1000, sessions_max=2)
    window.check("account1", "0-a-1", 0)
    window.check("account1", "0-b-1", 0)
    with pytest.raises(AccessDenied, match="Too many connections"):
        window.check("account1", "0-c-1", 0)
    window.check("account1", "0-a-2", 0)
    window.check("account1", "3000-c-1", 3000)


def test_a_connection_in_use_keeps_no_other_from_being_forgotten() -> None:
    """The order of forgetting is that of the last request of each connection, not of the first."""
    window = ReplayWindow(1000, sessions_max=2)
    window.check("account1", "0-a-1", 0)
    window.check("account1", "0-b-1", 0)
    window.check("account1", "1500-a-2", 1500)
    window.check("account1", "2001-c-1", 2001)


def test_the_longest_name_of_a_connection() -> None:
    """A text of 80 characters is one that a client may send; each is kept, so longer ones are refused."""
    ReplayWindow(1000).check("account1", "0-" + "a" * 76 + "-1", 0)
