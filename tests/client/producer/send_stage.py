"""Producers on a stage, and brokers that store what they send."""

import asyncio

from lockstep.client import Producer, ProducerConfig, SendError, SendOutcome, SendResult
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.properties import decode_properties
from tests.client.stage import FakeBroker, Stage

__all__ = ["SEND", "STORED", "header_of", "msg_id_of", "outcome_of", "producer_for", "store"]

SEND = RequestCode.SEND_MESSAGE_V2
STORED = SendMessageResponseHeader("OFFSETID", 0, 0)


def header_of(command: RemotingCommand) -> SendMessageRequestHeader:
    return command.decode_header(SendMessageRequestHeaderV2)


def msg_id_of(command: RemotingCommand) -> str:
    return decode_properties(header_of(command).properties or "")["UNIQ_KEY"]


def store(broker: FakeBroker) -> list[bytes]:
    """The broker stores every send; the bodies in order."""
    stored: list[bytes] = []

    def answer(command: RemotingCommand) -> RemotingCommand:
        stored.append(command.body)
        return command.reply(0, SendMessageResponseHeader("ID", header_of(command).queue_id, len(stored) - 1))

    broker.on[SEND] = broker.on[RequestCode.SEND_BATCH_MESSAGE] = answer
    return stored


def producer_for(stage: Stage, config: ProducerConfig | None = None, trace: str | None = None) -> Producer:
    return Producer(
        "pilots", name_server=stage.name_server, config=config, runtime=stage.client, trace=trace, log=stage.log
    )


async def outcome_of(send: "asyncio.Future[SendResult]") -> SendOutcome | None:
    try:
        await send
    except SendError as error:
        return error.outcome
    return None
