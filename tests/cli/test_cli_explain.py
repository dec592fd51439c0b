"""`lockstep consume` that gets nothing says why, once for each reason (cli/consume/explain.py)."""

from collections.abc import Callable

import pytest

from lockstep.cli.consume.explain import ConsumeLog, Explainer
from lockstep.client import AdminClient, ConsumeOrderlyContext, MessageExt, PushConsumer
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.locks import LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import OffsetResponseHeader
from tests.client.pulls.slaves import serves
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

R = RequestCode


class Command:
    """What `consume` is made of: a consumer on one queue, and an explainer beside it. `printed` counts messages."""

    def __init__(self, stage: Stage, broker: FakeBroker) -> None:
        self.stage, self.broker = stage, broker
        self.printed = 0
        self.writing = False
        self.log = ConsumeLog(stage.client, verbose=False)
        self.consumer = PushConsumer(
            "tower", name_server=broker.name_server, listener=self._print, runtime=stage.client, log=self.log
        )
        self.consumer.subscribe(TOPIC)
        self.admin = AdminClient(name_server=broker.name_server, runtime=stage.client, log=stage.log)
        self.explainer = Explainer(
            TOPIC,
            self.admin,
            self.consumer,
            self.log,
            stage.client,
            printed=lambda: self.printed,
            writing=lambda: self.writing,
        )

    async def _print(self, messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
        self.printed += len(messages)

    async def run(self, duration_ms: int) -> None:
        async with self.admin, self.consumer:
            self.broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList((self.consumer.client_id,)))
            explaining = self.stage.client.create_task(self.explainer.run(), name="explain")
            await self.stage.world.sleep_ms(duration_ms)
            explaining.cancel()


async def command(stage: Stage, *, locked: bool = True) -> Command:
    broker = await stage.broker(queues=1)
    broker.answers(R.LOCK_BATCH_MQ, LockOkBody((queue_at(0),) if locked else ()))
    broker.answers(R.UNLOCK_BATCH_MQ, 0)
    broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(0))
    broker.answers(R.GET_MAX_OFFSET, OffsetResponseHeader(3))
    broker.answers(R.UPDATE_CONSUMER_OFFSET, 0)
    broker.answers(R.PULL_MESSAGE, None)
    return Command(stage, broker)


def refuses_pulls(it: Command) -> None:
    it.broker.answers(R.PULL_MESSAGE, ResponseCode.SYSTEM_ERROR)


def refuses_offsets(it: Command) -> None:
    it.broker.answers(R.QUERY_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)


def has_nothing(it: Command) -> None:
    it.broker.answers(R.GET_MAX_OFFSET, OffsetResponseHeader(0))


def is_not_read(it: Command) -> None:
    it.writing = True


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (refuses_pulls, ["pull_failed queue=Aircraft@broker-a:0 error=", "PULL_MESSAGE (11) with SYSTEM_ERROR (1)"]),
        (refuses_offsets, ["pull_failed queue=Aircraft@broker-a:0 error=", "QUERY_CONSUMER_OFFSET (14)"]),
        (has_nothing, ["Aircraft has nothing that its group has not consumed, in 1 queue"]),
        (is_not_read, ["stdout is full: its reader does not read"]),
        (lambda _: None, ["1 of 1 queue pulled, 3 messages to come, none failed yet"]),
    ],
    ids=["pulls fail", "offsets fail", "nothing there", "stdout", "the broker is silent"],
)  # fmt: skip
@on_stage
async def test_ten_seconds_without_a_message(
    stage: Stage, trouble: Callable[[Command], None], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line then, with the request that fails and how; the same reason is not said again."""
    it = await command(stage)
    trouble(it)
    await it.run(25_500)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "no message" in line]
    assert line.startswith("lockstep: no message for 10 s: ")
    assert [text for text in said if text not in line] == []


@on_stage
async def test_a_message_begins_the_count_anew(stage: Stage) -> None:
    """A consumer that has had what there was is silent."""
    it = await command(stage)
    serves(it.broker, 1, last=3)
    await it.run(30_000)
    assert it.printed == 3


def test_no_queue_yet(capsys: pytest.CaptureFixture[str]) -> None:
    """Said after two seconds and not again: another member has the lock, on a broker that does not tell who."""

    @on_stage
    async def play(stage: Stage) -> None:
        await (await command(stage, locked=False)).run(30_000)

    play()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["lockstep: waiting for a queue of Aircraft; group tower has none for this consumer yet"]


@pytest.mark.parametrize("verbose", [False, True])
def test_flow_control_is_told_with_verbose_alone(verbose: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader that is slower than the pulls is no trouble; what fails is."""

    @on_stage
    async def play(stage: Stage) -> None:
        log = ConsumeLog(stage.client, verbose=verbose)
        log.warning("pull_throttled", queue="q", over="count")
        log.info("pull_failed", queue="q", error="no")
        assert log.failure_since(stage.client.now_ms()) == "pull_failed queue=q error=no"
        assert log.failure_since(stage.client.now_ms() + 1) is None
        log.error("rebalance_failed", error="why")

    play()
    said = capsys.readouterr().err.splitlines()
    shown = ["lockstep: pull_throttled queue=q over=count", "lockstep: pull_failed queue=q error=no"] if verbose else []
    assert said == [*shown, "lockstep: rebalance_failed error=why"]
