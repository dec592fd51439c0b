"""PushConsumer(fenced=...): what may be asked for, and what its listener's context says (docs/clients.md)."""

from typing import Any

import pytest

from lockstep.client import (
    ConsumeOrderlyContext,
    ConsumerConfig,
    ConsumerError,
    Fenced,
    LockLostError,
    MessageModel,
    PushConsumer,
)
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.epochs import make_epoch
from lockstep.remoting.settings import SettingError, with_properties
from tests.client.ownership.locks_stage import LOCK, answer, grant
from tests.client.periods import fenced, period
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

NAMES = "10.0.0.9:9876"
EPOCH = make_epoch(1_700_000_000_000, 7)


def nothing(*_: object) -> None: ...


def consumer(**arguments: Any) -> PushConsumer:
    return PushConsumer("tower", name_server=NAMES, listener=nothing, **arguments)


def test_what_fenced_may_be() -> None:
    """The argument, or the setting; the argument wins."""
    assert consumer().fenced is Fenced.NO
    assert consumer(fenced=True).fenced is Fenced.REQUIRED
    assert consumer(fenced="if the broker can", ordering="key").fenced is Fenced.IF_THE_BROKER_CAN
    config = with_properties(ConsumerConfig(), {"fenced": "REQUIRED", "on_lock_lost": "finish"})
    assert consumer(config=config).fenced is Fenced.REQUIRED
    assert consumer(config=config, fenced=False).fenced is Fenced.NO
    assert consumer(config=config).config.on_lock_lost == "finish"
    assert consumer(config=config, on_lock_lost="cancel").config.on_lock_lost == "cancel"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"fenced": True, "ordering": "none"}, "ordering='queue' or 'key'"),
        ({"fenced": True, "message_model": MessageModel.BROADCASTING}, "BROADCASTING"),
        ({"fenced": "maybe"}, "True, False or \"if the broker can\", not 'maybe'"),
        ({"on_lost": nothing}, "for fenced=True"),
        ({"fenced": True, "on_lock_lost": "kill"}, "'cancel' or 'finish', not 'kill'"),
    ],
)
def test_what_makes_no_sense_with_fenced(arguments: dict[str, Any], text: str) -> None:
    """A ValueError says what is allowed."""
    with pytest.raises(SettingError, match=text) as raised:
        consumer(**arguments)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("agrees", [True, False])
@on_stage
async def test_a_start_needs_brokers_with_fenced_locks(stage: Stage, agrees: bool) -> None:
    """With fenced=True it fails, names the broker, and leaves nothing behind."""
    broker = await stage.broker("broker-a", agrees=agrees)
    stage.route_to({"broker-a": 1})
    stage.route_to({"broker-a": 1}, "%RETRY%tower")
    answer(broker, grant())
    tower = PushConsumer(
        "tower", name_server=stage.name_server, listener=nothing, fenced=True, runtime=stage.client, log=stage.log
    )
    tower.subscribe(TOPIC)
    with pytest.raises(ConsumerError, match="these brokers have no fenced locks: broker-a"):
        await tower.start()
    assert [len(command.body) > 0 for command in broker.requests(LOCK)] == [True]


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def owned(clock: Clock, lease_ms: int = 60_000) -> tuple[ProcessQueue, ConsumeOrderlyContext]:
    period = fenced(queue_at(0), clock(), EPOCH, lease_ms)
    return period, ConsumeOrderlyContext(queue_at(0), True, -1, period, clock)


def test_the_context_has_the_epoch_and_the_lease() -> None:
    """As they are when the listener asks: a renewal counts at once."""
    clock = Clock()
    period, context = owned(clock)
    clock.now_ms += 25_000
    assert (context.lock_epoch, context.lease_remaining_ms) == (EPOCH, 35_000)
    period.hold.granted(clock(), 60_000)
    assert context.lease_remaining_ms == 60_000
    context.check()
    assert repr(context).count("_period") == 0


def test_check_raises_when_the_lease_has_ended() -> None:
    """To the millisecond, although a renewal may still come."""
    clock = Clock()
    _, context = owned(clock)
    clock.now_ms += 59_999
    context.check()
    clock.now_ms += 1
    with pytest.raises(LockLostError, match="1700000000000-7"):
        context.check()
    assert context.lease_remaining_ms == 0


@pytest.mark.parametrize("how", ["lost", "dropped"])
def test_check_raises_when_the_lock_is_lost(how: str) -> None:
    """However long the lease was."""
    period, context = owned(Clock())
    setattr(period.life, how, True)
    with pytest.raises(LockLostError):
        context.check()


def test_a_queue_that_is_given_away_may_finish() -> None:
    """The lock is held until the running call has ended."""
    period, context = owned(Clock())
    period.life.draining = True
    context.check()
    assert context.lease_remaining_ms == 60_000


def test_a_context_without_a_fenced_lock() -> None:
    """It has epoch 0, and its check does nothing."""
    clock = Clock()
    held = period(queue_at(0), clock())
    for context in (ConsumeOrderlyContext(queue_at(0)), ConsumeOrderlyContext(queue_at(0), True, -1, held, clock)):
        assert (context.lock_epoch, context.lease_remaining_ms) == (0, 0)
        context.check()
