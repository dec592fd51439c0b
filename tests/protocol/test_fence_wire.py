"""What the fenced lock adds to RocketMQ's requests: absent towards other peers, and ignored by older ones of ours."""

from typing import Any, NamedTuple

import msgpack
import pytest

from lockstep.protocol.bodies.codec import WireBody, encode_body
from lockstep.protocol.bodies.locks import (
    LockBatchBody,
    LockGrant,
    LockOkBody,
    LocksReleasedBody,
    LockTableBody,
    LockTableRow,
)
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.epochs import COUNTER_MAX, EpochValue, boot_of, epoch_text, make_epoch, parse_epoch
from lockstep.protocol.errors import BodyError
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import (
    PullMessageRequestHeader,
    ResetOwnOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.headers.spec import Int32, spec_of
from lockstep.protocol.model import MessageQueue
from tests.rows import by_row

R = RequestCode
BOOT = 1_795_208_639_549
EPOCH = make_epoch(BOOT, 7)
QUEUE, OTHER = MessageQueue("T", "broker-a", 3), MessageQueue("T", "broker-a", 4)
LOCK = LockBatchBody("G", "c", (QUEUE, OTHER), (0, EPOCH))
HEADERS: dict[RequestCode, tuple[Any, ...]] = {
    R.PULL_MESSAGE: PullMessageRequestHeader("G", "T", 3, 9, 32, 6, 8, 15_000, 0, "*", "TAG", EPOCH, "c"),
    R.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader("G", "T", 3, 9, EPOCH, "c"),
    R.CONSUMER_SEND_MSG_BACK: SendMessageBackRequestHeader(
        1, "G", 0, lock_epoch=EPOCH, lock_client_id="c", lock_topic="T", lock_queue_id=3
    ),
    R.SEND_MESSAGE: SendMessageRequestHeader(
        "P", "T", "TBW102", 4, 0, 0, 1, 0, lock_epoch=EPOCH, lock_client_id="c", lock_topic="T", lock_queue_id=3
    ),
    R.SEND_MESSAGE_V2: SendMessageRequestHeaderV2(
        "P", "T", "TBW102", 4, 0, 0, 1, 0, lock_epoch=EPOCH, lock_client_id="c", lock_topic="T", lock_queue_id=3
    ),
    R.RESET_OWN_OFFSET: ResetOwnOffsetRequestHeader("G", "T", 3, 9, EPOCH, "c"),
}


def test_epochs_order_by_boot_then_counter() -> None:
    """The full counter of one boot is below the next boot, and a number of 64 bits holds both."""
    epochs = [make_epoch(BOOT, 0), EPOCH, make_epoch(BOOT, COUNTER_MAX), make_epoch(BOOT + 1, 0)]
    assert epochs == sorted(set(epochs))
    assert [boot_of(epoch) for epoch in epochs] == [BOOT, BOOT, BOOT, BOOT + 1]
    assert make_epoch((1 << 42) - 1, COUNTER_MAX) == (1 << 63) - 1


@pytest.mark.parametrize(("boot", "counter"), [(1 << 42, 0), (1, COUNTER_MAX + 1), (-1, 0), (1, -1)])
def test_parts_that_make_no_epoch(boot: int, counter: int) -> None:
    """What would not fit is refused instead of running into the other part."""
    with pytest.raises(ValueError, match="an epoch has a boot of 0 to 4398046511103 and a counter of 0 to 2097151"):
        make_epoch(boot, counter)


def test_epochs_as_texts() -> None:
    """A text has boot and counter, and both forms are read."""
    assert epoch_text(EPOCH) == "1795208639549-7"
    assert parse_epoch(epoch_text(EPOCH)) == parse_epoch(EPOCH) == EPOCH
    assert parse_epoch(0) == parse_epoch("0-0") == 0


@by_row("value", ["", "7", "7-", "-7", "7-8-9", "a-b", "1-\u0663", "9" * 30 + "-1", -1, 1 << 63, True, 1.0, None])
def test_values_that_are_no_epoch(value: Any) -> None:
    """Texts of other shapes, numbers out of range and other types."""
    with pytest.raises(ValueError, match="epoch"):
        parse_epoch(value)


def test_an_epoch_is_text_in_json_and_a_number_in_msgpack() -> None:
    """Readers of JSON lose the last digits of such numbers."""
    grant = LockOkBody((QUEUE,), (LockGrant(EPOCH, 60_000),), ())
    assert encode_body(grant, SerializeType.JSON).startswith(
        b'{"epochs":["1795208639549-7"],"leasesMs":[60000],"lockOKMQSet":'
    )
    packed = msgpack.unpackb(encode_body(grant, SerializeType.MSGPACK))
    assert (packed["epochs"], packed["leasesMs"]) == ([EPOCH], [60_000])
    assert str(EpochValue(EPOCH)) == "1795208639549-7", "the control port writes it so"


def test_absent_members_leave_rocketmqs_bytes() -> None:
    """Without epochs a body has RocketMQ's members only; a row has those of a broker without fenced locks."""
    assert LockBatchBody("G", "c", (QUEUE,)).to_wire().keys() == {"clientId", "consumerGroup", "mqSet"}
    assert LockOkBody((QUEUE,)).to_wire().keys() == {"lockOKMQSet"}
    row = LockTableRow("G", QUEUE, "c", 1, 2, 3).to_wire()
    assert row.keys() == {"ageMs", "clientId", "consumerGroup", "heldMs", "messageQueue", "remainingMs"}


@by_row(
    "body_class, wire",
    [
        (LockBatchBody, LOCK.to_wire() | {"epochs": ["1-1"]}),
        (LockBatchBody, LOCK.to_wire() | {"epochs": ["1-1", "many"]}),
        (LockBatchBody, LOCK.to_wire() | {"epochs": 5}),
        (LockOkBody, {"lockOKMQSet": [], "epochs": [1], "leasesMs": [1]}),
        (LockOkBody, LockOkBody((QUEUE,)).to_wire() | {"epochs": [1]}),
        (LockOkBody, LockOkBody((QUEUE,)).to_wire() | {"epochs": [1], "leasesMs": ["soon"]}),
        (LockOkBody, {"lockOKMQSet": [], "refusals": [{"answer": "HELD"}]}),
        (LockTableBody, {"lockTable": [LockTableRow("G", QUEUE, "c", 1, 2, 3).to_wire() | {"epoch": "x"}]}),
        (LocksReleasedBody, {"queues": []}),
    ],
)
def test_wrong_members_are_refused(body_class: type[WireBody], wire: Any) -> None:
    """Another number of epochs than queues, and values of other types."""
    with pytest.raises(BodyError):
        body_class.from_wire(wire)


def test_a_queue_that_is_named_twice_keeps_its_last_epoch() -> None:
    """A lock request names a set of queues."""
    assert LockBatchBody("G", "c", (QUEUE, OTHER, QUEUE), (1, 2, 3)).once() == LockBatchBody(
        "G", "c", (QUEUE, OTHER), (3, 2)
    )
    assert LockBatchBody("G", "c", (QUEUE, QUEUE)).once() == LockBatchBody("G", "c", (QUEUE,))


def through(command: RemotingCommand) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command) + command.body)
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


@pytest.mark.parametrize("code", [code for code in HEADERS if code != R.RESET_OWN_OFFSET], ids=lambda code: code.name)
def test_absent_fields_are_not_on_a_json_wire(code: RequestCode) -> None:
    """A header without an epoch has the extFields that RocketMQ's clients send."""
    spec = spec_of(type(HEADERS[code]))
    names = [field.name for field in spec.fields]
    texts = spec.to_texts(
        tuple(None if name.startswith("lock_") else value for name, value in zip(names, HEADERS[code], strict=True))
    )
    assert not any(name.startswith("lock") or name in ("le", "lc", "lt", "lq") for name in texts)


class CommitHeaderBefore(NamedTuple):
    """UPDATE_CONSUMER_OFFSET as a broker reads it that does not know the fenced lock."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: int


@pytest.mark.parametrize("serialize_type", list(SerializeType), ids=lambda t: t.name)
def test_an_older_peer_reads_what_it_knows(serialize_type: SerializeType) -> None:
    """Fields and members that are appended do not disturb it."""
    header = HEADERS[R.UPDATE_CONSUMER_OFFSET]
    read = through(RemotingCommand(R.UPDATE_CONSUMER_OFFSET, header, serialize_type=serialize_type))
    assert read.decode_header(CommitHeaderBefore) == ("G", "T", 3, 9)
    wire = LockOkBody((QUEUE,)).to_wire() | {"epochs": [EPOCH], "leasesMs": [1], "later": {"more": 1}}
    assert LockOkBody.from_wire(wire) == LockOkBody((QUEUE,), (LockGrant(EPOCH, 1),))
