"""A transaction producer's answers to checks of brokers, one after the other, with limits."""

import asyncio

import pytest

from lockstep.client import (
    ClientError,
    HalfMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    ProducerConfig,
    SendError,
    TransactionProducer,
)
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.message import Record, encode_stored_message
from tests.client.producer.send_stage import SEND, header_of
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage

S = LocalTransactionState
HOST = bytes((10, 0, 0, 1))
ID_OF_OFFSET_77 = "0A000001" + "00002A9F" + f"{77:016X}"
END = RequestCode.END_TRANSACTION


class Listener:
    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.executed: list[HalfMessage] = []
        self.checked: list[str] = []
        self.at_once = 0

    def execute_local_transaction(self, message: HalfMessage, arg: object) -> object:
        self.executed.append(message)
        if isinstance(arg, Exception):
            raise arg
        return arg

    async def check_local_transaction(self, message: MessageExt) -> object:
        self.at_once += 1
        assert self.at_once == 1, "one question after the other"
        await asyncio.sleep(0.01)
        self.at_once -= 1
        self.checked.append(message.transaction_id)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def make(stage: Stage, listener: Listener, **settings: int) -> TransactionProducer:
    return TransactionProducer(
        "shop",
        listener=listener,  # type: ignore[arg-type]
        name_server=stage.name_server,
        config=ProducerConfig(**settings),  # type: ignore[arg-type]
        runtime=stage.client,
        log=stage.log,
    )


async def broker_on(stage: Stage) -> FakeBroker:
    broker = await stage.broker(queues=1)
    stage.route_to({"broker-a": 1}, topic="TBW102")
    broker.answers(SEND, SendMessageResponseHeader(ID_OF_OFFSET_77, 0, 5))
    return broker


def question(number: int, group: str = "shop") -> RemotingCommand:
    properties = f"PGROUP\x01{group}\x02UNIQ_KEY\x01K{number}\x02TRAN_MSG\x01true".encode()
    record = Record(TOPIC, 0, 0, 0, 1, HOST, 1, 2, 0, 0, b"x", properties, 0)
    body = encode_stored_message(record, TOPIC.encode(), 9, 900, HOST, 10911)
    header = CheckTransactionStateRequestHeader(number, 1000 + number, f"K{number}", f"K{number}", "ID")
    return RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, header, body)


def ends(broker: FakeBroker) -> list[EndTransactionRequestHeader]:
    return [command.decode_header(EndTransactionRequestHeader) for command in broker.requests(END)]


@pytest.mark.parametrize(
    ("arg", "decision", "state"),
    [(S.COMMIT_MESSAGE, 8, S.COMMIT_MESSAGE), (S.ROLLBACK_MESSAGE, 12, S.ROLLBACK_MESSAGE), (None, 0, S.UNKNOWN),
     (S.UNKNOWN, 0, S.UNKNOWN), ("nonsense", 0, S.UNKNOWN), (ValueError("no stock"), 0, S.UNKNOWN)],
)  # fmt: skip
@on_stage
async def test_the_end_of_a_transaction(stage: Stage, arg: object, decision: int, state: LocalTransactionState) -> None:
    """It is a one-way request with the half message's offsets; the listener's exception is its remark. A delay is
    dropped."""
    broker, listener = await broker_on(stage), Listener()
    async with make(stage, listener) as producer:
        result = await producer.send_in_transaction(Message(TOPIC, b"x", delay_level=3, tags="A"), arg)
        await stage.world.sleep_ms(10)
    (executed,) = listener.executed
    (command,) = broker.requests(END)
    assert command.is_one_way
    assert ends(broker) == [
        EndTransactionRequestHeader("shop", 5, 77, decision, result.msg_id, False, result.transaction_id)
    ]
    assert ("no stock" in (command.remark or "")) == isinstance(arg, Exception)
    assert result.local_transaction_state is state
    assert (executed.transaction_id, executed.tags, executed.delay_level) == (result.msg_id, "A", 0)
    (half,) = broker.requests(SEND)
    assert "DELAY\x01" not in (header_of(half).properties or "")


@pytest.mark.parametrize("code", [10, 11, 12])
@on_stage
async def test_stored_but_not_everywhere_is_rolled_back(stage: Stage, code: int) -> None:
    """Nothing is executed for a half message that a failing disk or slave may lose."""
    broker, listener = await broker_on(stage), Listener()
    header = SendMessageResponseHeader(ID_OF_OFFSET_77, 0, 5)
    broker.on[SEND] = lambda command: command.reply(code, header)
    async with make(stage, listener) as producer:
        result = await producer.send_in_transaction(Message(TOPIC, b"x"), S.COMMIT_MESSAGE)
        await stage.world.sleep_ms(10)
    assert listener.executed == []
    assert result.local_transaction_state is S.ROLLBACK_MESSAGE
    assert [end.commit_or_rollback for end in ends(broker)] == [12]


@on_stage
async def test_a_half_message_that_is_refused(stage: Stage) -> None:
    """Nothing is executed, and nothing ended."""
    broker, listener = await broker_on(stage), Listener()
    broker.answers(SEND, ResponseCode.MESSAGE_ILLEGAL)
    async with make(stage, listener) as producer:
        with pytest.raises(SendError):
            await producer.send_in_transaction(Message(TOPIC, b"x"), S.COMMIT_MESSAGE)
    assert (listener.executed, broker.requests(END)) == ([], [])


@on_stage
async def test_questions_are_answered_one_after_the_other(stage: Stage) -> None:
    """With the offsets of the check. A listener that fails answers unknown. Checks beyond the limit, and those for
    another group, are not answered."""
    broker = await broker_on(stage)
    listener = Listener(S.COMMIT_MESSAGE, ValueError("database gone"), S.ROLLBACK_MESSAGE)
    async with make(stage, listener, check_request_hold_max=3):
        for number in range(5):
            broker.endpoints[-1].send_one_way(question(number, group="shop" if number else "others"))
        await stage.world.sleep_ms(100)
        assert [
            (end.tran_state_table_offset, end.commit_log_offset, end.commit_or_rollback) for end in ends(broker)
        ] == [
            (1, 1001, 8),
            (2, 1002, 0),
            (3, 1003, 12),
        ]
        assert {(end.producer_group, end.from_transaction_check) for end in ends(broker)} == {("shop", True)}
        assert (
            [end.msg_id for end in ends(broker)] == [end.transaction_id for end in ends(broker)] == ["K1", "K2", "K3"]
        )
        assert "database gone" in (broker.requests(END)[1].remark or "")
    assert listener.checked == ["K1", "K2", "K3"]
    assert [fields["why"] for _, event, fields in stage.log.events if event == "transaction_check_ignored"] == [
        "the transaction belongs to group 'others'",
        "3 checks wait already, as many as check_request_hold_max allows",
    ]


@on_stage
async def test_it_is_known_before_it_sends(stage: Stage) -> None:
    """A member that never sends is registered when its start returns, and takes no question after its shutdown."""
    broker, listener = await broker_on(stage), Listener(S.COMMIT_MESSAGE)
    producer = make(stage, listener)
    await producer.start()
    assert broker.requests(RequestCode.HEART_BEAT)
    broker.endpoints[-1].send_one_way(question(1))
    await stage.world.sleep_ms(5)
    await producer.shutdown()
    await producer.shutdown()
    with pytest.raises(ClientError):
        await producer.send_in_transaction(Message(TOPIC, b"x"))
    await stage.world.sleep_ms(50)
    assert broker.requests(END) == [], "the broker asks again, or another member"
