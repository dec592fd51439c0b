"""Accounts on the port of RocketMQ 5's clients: who signs what, and what an account may do."""

import hmac
from pathlib import Path
from typing import Any

from lockstep.broker.acl.worker import AclRules
from lockstep.broker.fronts.grpc.access import check_access
from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.protocol.grpc import messages as pb
from tests.broker.acl.accounts import HOST, files
from tests.broker.fronts.grpc.grpc_client import topic_of
from tests.broker.helpers import FakeConnection
from tests.rows import each_row

DATE = "20261127T080000Z"


def signature(secret: str) -> str:
    return hmac.new(secret.encode(), DATE.encode(), "sha1").hexdigest().upper()


def authorization(key: str = "account1", secret: str = "secret-1234") -> str:
    return f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature(secret)}"


class FakeCall:
    def __init__(self, request: Any, header: str, date: str, host: str) -> None:
        self.method = type(request).DESCRIPTOR.name.removesuffix("Request").replace("TelemetryCommand", "Telemetry")
        self.metadata = {"authorization": header, "x-mq-date-time": date}
        self.peer = FakeConnection(f"{host}:5000")


def sends(topic: str) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(messages=[pb.Message(topic=topic_of(topic))])


def receives(topic: str, group: str = "open") -> pb.ReceiveMessageRequest:
    request = pb.ReceiveMessageRequest(group=topic_of(group))
    request.message_queue.topic.name = topic
    return request


def subscribes(topic: str) -> pb.TelemetryCommand:
    command = pb.TelemetryCommand()
    command.settings.subscription.group.name = "open"
    command.settings.subscription.subscriptions.add().topic.name = topic
    return command


GOOD = authorization()
ACKS = pb.AckMessageRequest(topic=topic_of("read"), group=topic_of("closed"))
CALLS: dict[str, tuple[Any, str, str, int]] = {  # request, authorization, date, code
    "right": (sends("both"), GOOD, DATE, 0),
    "as Go writes it": (sends("both"), authorization("account1//Rocketmq"), DATE, 0),
    "unsigned": (sends("both"), "", DATE, pb.UNAUTHORIZED),
    "garbage": (sends("both"), "Basic x", DATE, pb.UNAUTHORIZED),
    "nobody": (sends("both"), authorization("nobody"), DATE, pb.UNAUTHORIZED),
    "other secret": (sends("both"), authorization(secret="wrong"), DATE, pb.UNAUTHORIZED),
    "no date": (sends("both"), GOOD, "", pb.UNAUTHORIZED),
    "other date": (sends("both"), GOOD, "2026", pb.UNAUTHORIZED),
    "may not send": (sends("read"), GOOD, DATE, pb.FORBIDDEN),
    "may read": (receives("read"), GOOD, DATE, 0),
    "may not read": (receives("written"), GOOD, DATE, pb.FORBIDDEN),
    "closed group": (receives("read", "closed"), GOOD, DATE, pb.FORBIDDEN),
    "acks of a closed group": (ACKS, GOOD, DATE, pb.FORBIDDEN),
    "may subscribe": (subscribes("read"), GOOD, DATE, 0),
    "may not subscribe": (subscribes("written"), GOOD, DATE, pb.FORBIDDEN),
    "an administrator": (sends("anything"), authorization("adminadmin", "secret-admin"), DATE, 0),
}


def test_an_account_may_do_what_its_rules_say(tmp_path: Path) -> None:
    """A row a call; a white address needs no account."""
    rules: Any = AclRules(files(tmp_path), None)  # type: ignore[arg-type]
    with each_row() as row:
        for name, (request, header, date, code) in CALLS.items():
            with row(name):
                found = 0
                try:
                    check_access(rules, FakeCall(request, header, date, HOST), request)  # type: ignore[arg-type]
                except Failure as why:
                    found = why.code
                assert found == code
    check_access(rules, FakeCall(sends("both"), "", "", "10.9.9.1"), sends("both"))  # type: ignore[arg-type]
