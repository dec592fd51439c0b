"""Sends of a story that fail: they are tried again, or named; a listener is not blamed for them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.client import Message
from lockstep.simulation import StoryCluster, order_test
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.user.story import experiment

# A listener that takes each key's messages only in their order, without a gap, as a state machine does.
STEPS = """
import asyncio

KEYS = 4
last = {}


async def consumer(messages, context):
    await asyncio.sleep(0.01)
    for message in messages:
        number = int(message.body)
        if number > last.get(number % KEYS, number % KEYS - KEYS) + KEYS:
            raise ValueError(f"a step before {number} is missing")
        last[number % KEYS] = number
"""
OUTAGES = ("--kill", "broker@10s+9s"), ("--power-off", "broker@10s10ms+9s"), ("--partition", "producer-broker@10s+9s")


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(STEPS, encoding="utf-8")
    return f"{tmp_path / 'shop.py'}:consumer"


def run(shop: str, *words: str) -> tuple[int, str]:
    """Exit status and output."""
    result = CliRunner().invoke(app, ["run", shop, "--for", "40s", "--keys", "4", "--rate", "5", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda words: words[0])
def test_an_outage_loses_no_message(shop: str, outage: tuple[str, str]) -> None:
    """The producer sends a message again, and later ones of its key wait: nobody misses a step."""
    status, output = run(shop, *outage)
    assert status == 0, output
    assert "200 messages were sent" in output
    assert "sends failed, first at 0:1" in output
    assert "Their messages were sent again until they were stored" in output


def test_a_failed_send_is_named(shop: str) -> None:
    """A listener that waits for its message fails; the producer is to blame, and the output says so."""
    status, output = run(shop, "--kill", "broker@10s+9s", "--no-retry-sends")
    assert status == 1
    assert "155 messages were sent" in output
    assert "45 sends failed, first at 0:10.0: " in output
    assert "What is not stored is not handled, and a listener that waits for it waits for ever" in output
    assert "messages were sent and never handled; the sends of 45 others failed." in output


def test_a_message_can_be_made_after_a_failed_send() -> None:
    """`message` may have a second parameter: the numbers whose sends have failed."""
    seen = []

    def message(number: int, failed: Mapping[int, Exception]) -> Message:
        seen.append(dict(failed))
        return Message("orders", b"%d" % number, sharding_key="one")

    @experiment(
        swarm=(), events=["kill broker@5s+5s"], life="15s", rate=1, store="sync", retry_sends=False, message=message
    )
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()
        await cluster.finish()
        assert list(cluster.sends.failed) == [5, 6, 7, 8, 9]

    ended = story.run(seed=1)
    assert ended.error is None
    assert list(seen[4]) == []
    assert list(seen[-1]) == [5, 6, 7, 8, 9]


@order_test(seeds=1, swarm=(), events=["kill producer@5s+5s"], life="15s", rate=1)
async def test_the_end_of_the_producer_is_a_failed_send(cluster: StoryCluster) -> None:
    """A message that was due while it was down is named too."""
    await cluster.finish()
    assert list(cluster.sends.failed) == [5, 6, 7, 8, 9]
    assert len(cluster.sent) == 10
