"""Profiles of settings: RocketMQ's, and the articles' where their numbers differ (client/profiles.py)."""

from typing import Any

import pytest

from lockstep.cli.options import Profile
from lockstep.client import ConsumerConfig
from lockstep.client.profiles import PROFILES, profiled
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from tests.client.pulls.pulling import PULL, Answer, found, in_turn, pulling
from tests.client.stage import Stage, on_stage


def test_the_command_offers_all_of_them() -> None:
    """By the same names; any other is refused where it is given."""
    assert {profile.value for profile in Profile} == set(PROFILES)
    with pytest.raises(KeyError):
        profiled(ConsumerConfig(), "kafka")


def test_rocketmqs_profile_is_the_default() -> None:
    """It changes nothing."""
    assert profiled(ConsumerConfig(), "rocketmq") == (ConsumerConfig(), [])


def test_the_articles_numbers() -> None:
    """3 s after a failure (articles 1, 3, 4), a rebalance each 10 s (5), offsets stored each 10 s (3); no other."""
    config, changed = profiled(ConsumerConfig(), "articles")
    assert config == ConsumerConfig(
        pull_delay_when_exception_ms=3000, rebalance_interval_ms=10_000, persist_consumer_offset_interval_ms=10_000
    )
    assert changed == [
        ("pull_delay_when_exception_ms", 1000, 3000),
        ("rebalance_interval_ms", 20_000, 10_000),
        ("persist_consumer_offset_interval_ms", 5000, 10_000),
    ]


@on_stage
async def test_a_failed_pull_waits_as_the_articles_say(stage: Stage) -> None:
    """onException of article 4: 3 seconds later."""
    it = await pulling(stage, **dict[str, Any](PROFILES["articles"]))
    times: list[int] = []
    answer = in_turn(lambda command: command.reply(ResponseCode.SYSTEM_ERROR, remark="no"), found(5))

    def note(command: RemotingCommand) -> Answer:
        times.append(stage.world.elapsed_ms)
        return answer(command)

    it.broker.on[PULL] = note
    await it.run(3500)
    assert [pull.queue_offset for pull in it.pulls] == [5, 5, 6]
    assert 3000 <= times[1] - times[0] <= 3010
