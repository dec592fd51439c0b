"""Scenarios under RocketMQ's binary header too, which our client can use with any RocketMQ broker (wire.md 1.3)."""

import pytest

from lockstep.client import SerializeType
from tests.scenarios.consumers import test_listener_answers
from tests.scenarios.locks import test_takeover
from tests.scenarios.producers import test_sends
from tests.scenarios.scenario import STORIES, Mode

_MODULES = [module.__name__.rpartition(".")[2] for module in (test_listener_answers, test_sends, test_takeover)]
_CHOSEN = [name for name in STORIES if f"test_{name.partition('.')[0]}" in _MODULES][::4]


@pytest.mark.parametrize("name", _CHOSEN)
def test_a_story_in_binary(name: str) -> None:
    """Sends, locks, pulls, commits and dead letters work in the binary encoding as in the others."""
    STORIES[name].run(Mode(SerializeType.ROCKETMQ))


def test_there_are_stories() -> None:
    """The chosen scenarios exist."""
    assert len(_CHOSEN) >= 5
