"""Each exhibit of the museum still shows its bug, the product does not, and the texts are those of the registry."""

from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import outcome_of, run_plan
from lockstep.simulation.museum.pages import Visit
from lockstep.simulation.museum.plan import MuseumPlan
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.museum.variant import replaced, variant
from lockstep.simulation.search.explain import Healed
from lockstep.simulation.virtual_time.loop import VirtualLoop
from tests.simulation.museum.find import first_seed

ROOT: Final = Path(__file__).parents[3]
AGAIN: Final = "python -m tests.simulation.museum.find"


@pytest.mark.rotating
@pytest.mark.parametrize("key", EXHIBITS)
def test_it_replays(key: str) -> None:
    """The smallest plan shows the violation under the variant; the product runs the same plan without any."""
    seen = Visit(EXHIBITS[key])
    assert seen.run.error is None
    assert EXHIBITS[key].kind in outcome_of(seen.run).wrong, f"a seed has another meaning now? Then {AGAIN} {key}"
    assert outcome_of(seen.mended).wrong == {}
    assert seen.mended.error is None
    assert seen.replays


@pytest.mark.rotating
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("key", EXHIBITS)
def test_the_sweep_finds_it(key: str) -> None:
    """No earlier seed has it."""
    exhibit = EXHIBITS[key]
    assert exhibit.found is not None
    assert first_seed(exhibit) == exhibit.found.seed


def test_a_variant_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an exhibit the product is as it was, also after a Ctrl-C before its coroutines were closed."""
    before, exhibit = vars(MessageCache)["make_messages_to_consume_again"], EXHIBITS["failed-message"]
    plan = exhibit.draw(3, exhibit.mode)
    assert run_plan(exhibit, plan).error is None
    assert vars(MessageCache)["make_messages_to_consume_again"] is before
    monkeypatch.setattr(MuseumPlan, "limit_ms", 20_000)
    monkeypatch.setattr(VirtualLoop, "close", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_plan(exhibit, plan)
    assert vars(MessageCache)["make_messages_to_consume_again"] is before


def _interrupted(_: VirtualLoop) -> None:
    raise KeyboardInterrupt


def test_a_variant_is_put_back_after_an_error() -> None:
    """Of several parts all are put back, the last one first, and the error goes on."""
    before = vars(Hold)["is_trusted"], vars(MessageCache)["make_messages_to_consume_again"]
    begin = variant(
        replaced(Hold, "is_trusted", lambda _: lambda *_arguments: True),
        replaced(Hold, "is_trusted", lambda _: lambda *_arguments: False),
        replaced(MessageCache, "make_messages_to_consume_again", lambda _: lambda *_arguments: None),
    )
    with pytest.raises(RuntimeError, match="in the run"), begin():
        raise RuntimeError("in the run")
    assert before == (vars(Hold)["is_trusted"], vars(MessageCache)["make_messages_to_consume_again"])


def test_a_variant_that_cannot_begin_changes_nothing() -> None:
    """The parts that had begun are put back."""
    before = vars(Hold)["is_trusted"]
    begin = variant(
        replaced(Hold, "is_trusted", lambda _: lambda *_arguments: True),
        replaced(Hold, "a_method_that_is_gone", lambda method: method),
    )
    with pytest.raises(KeyError), begin():
        pass
    assert vars(Hold)["is_trusted"] is before


def test_an_exhibit_that_is_healed_keeps_its_variant() -> None:
    """`explain` heals at one moment or another; the bug of the exhibit stays in the product."""
    exhibit = EXHIBITS["failed-message"]
    assert exhibit.found is not None
    plan = exhibit.found.plan
    healed: Any = Healed(exhibit, plan.life_ms)
    assert exhibit.kind in outcome_of(run_plan(healed, plan)).wrong


def test_there_are_the_exhibits_that_were_asked_for() -> None:
    """Of RocketMQ and its clients, Kafka, Pulsar and RabbitMQ."""
    reports = {exhibit.report for exhibit in EXHIBITS.values()}
    assert reports >= {
        "apache/rocketmq #10955", "apache/rocketmq #1825", "apache/rocketmq #2621", "apache/rocketmq #4086",
        "kafka4beam/brod #649", "spring-projects/spring-kafka #3186", "rabbitmq/rabbitmq-server #17317",
        "apache/pulsar #15189", "confluentinc/parallel-consumer #857", "platformatic/kafka #267",
        "apache/rocketmq-client-go #618", "apache/rocketmq-client-go #994", "apache/rocketmq-client-go #1080",
        "PostHog/posthog #76100", "apache/rocketmq #3503", "apache/rocketmq #6690", "apache/rocketmq #7999",
        "apache/rocketmq #8154", "apache/rocketmq #9695", "apache/rocketmq #10229", "apache/rocketmq #10827",
        "apache/rocketmq-clients #708", "apache/rocketmq-clients #754",
    }  # fmt: skip


def test_the_rules_name_documents_that_exist() -> None:
    """Each rule that prevents a bug is written somewhere."""
    for exhibit in EXHIBITS.values():
        named = [word.strip("(),.;") for word in exhibit.rule.split() if ".md" in word]
        assert named, exhibit.key
        for name in named:
            assert (ROOT / name).exists() or (ROOT / "docs" / name).exists(), (exhibit.key, name)


def test_an_exhibit_is_an_experiment() -> None:
    """It is found by its name, so sweep, replay and timeline take it."""
    assert find_experiment("museum/failed-message") is EXHIBITS["failed-message"]


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_lists_the_exhibits() -> None:
    """Without a name it is a table."""
    shown = CliRunner().invoke(app, ["museum"])
    assert shown.exit_code == 0
    assert all(key in shown.output for key in EXHIBITS)


def test_the_command_tells_an_exhibit() -> None:
    """What was reported, what prevents it, and both runs."""
    shown = CliRunner().invoke(app, ["museum", "failed-message"])
    assert shown.exit_code == 0
    assert "apache/rocketmq-client-go #618" in shown.output
    assert "lost-write: " in shown.output
    assert "no violation" in shown.output


def test_the_command_refuses_an_unknown_name() -> None:
    """One clear line, and status 2."""
    shown = CliRunner().invoke(app, ["museum", "dodo"])
    assert shown.exit_code == 2
    assert "no exhibit is named" in shown.output
