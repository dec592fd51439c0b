"""Who may call what, by the accounts of plain_acl.yml (docs/security.md).

Clients of RocketMQ 5 sign the text of their `x-mq-date-time`, and nothing else: whoever sees one call may make others.
RocketMQ accepts a date of any age, too. On a network that others read, use TLS.
"""

import hmac
import re
from collections.abc import Iterable
from typing import Any, Final

from lockstep.broker.acl.errors import AccessDenied
from lockstep.broker.acl.permissions import PUB, SUB, Account, check_permissions
from lockstep.broker.acl.worker import AclRules
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.broker.fronts.grpc.validation import named
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.names import retry_topic

__all__ = ["check_access"]

_SIGNED: Final = "authorization"
_DATE: Final = "x-mq-date-time"
_HEADER: Final = re.compile(r"MQv2-HMAC-SHA1 Credential=([^,]*), ?SignedHeaders=[^,]*, ?Signature=([0-9A-Fa-f]{40})")
_NO_CODE: Final = 0  # calls have names; only a refusal of what is for administrators shows a code
_SENDS: Final = frozenset(("EndTransaction", "RecallMessage"))
_READS: Final = frozenset(
    (
        "QueryAssignment",
        "AckMessage",
        "ChangeInvisibleDuration",
        "ForwardMessageToDeadLetterQueue",
        "Heartbeat",
        "NotifyClientTermination",
        "SyncLiteSubscription",
    )
)

_Wanted = Iterable[tuple[str, int]]


def check_access(rules: AclRules, call: Call, request: Any) -> None:
    """Raises Failure unless the account of a call has what it needs, with the texts of RocketMQ's proxy."""
    table = rules.files.rules
    host = call.peer.address.rpartition(":")[0].strip("[]")
    if any(fits(host) for fits in table.white_addresses):
        return
    header = call.metadata.get(_SIGNED, "")
    if not header:
        raise Failure(pb.UNAUTHORIZED, "username cannot be null.")
    found = _HEADER.fullmatch(header)
    if found is None:
        raise Failure(pb.UNAUTHORIZED, "authentication header is incorrect.")
    # Go writes more behind the key.
    access_key = found[1].partition("/")[0]
    account = table.accounts.get(access_key)
    if account is None:
        raise Failure(pb.UNAUTHORIZED, f"User:{access_key[:64]} is not found.")
    _check_signature(account, call, found[2])
    try:
        check_permissions(account, _NO_CODE, admin=False, wanted=_wanted(call.method, request))
    except AccessDenied as why:
        raise Failure(pb.FORBIDDEN, str(why)) from None


def _check_signature(account: Account, call: Call, given: str) -> None:
    date = call.metadata.get(_DATE, "")
    if not date:
        raise Failure(pb.UNAUTHORIZED, "datetime is null.")
    expected = hmac.new(account.secret_key.encode(), date.encode(), "sha1").hexdigest()
    if not hmac.compare_digest(given.lower(), expected):
        raise Failure(pb.UNAUTHORIZED, "check signature failed.")


def _wanted(method: str, request: Any) -> _Wanted:
    """Topics and retry topics, which stand for groups, each with the permission that it must give."""
    if method == "SendMessage":
        return [(named(one.topic), PUB) for one in request.messages]
    if method in _SENDS:
        return [(named(request.topic), PUB)]
    if method == "ReceiveMessage":
        return [(named(request.message_queue.topic), SUB), (retry_topic(named(request.group)), SUB)]
    if method == "Telemetry":
        return _of_settings(request.settings)
    if method in _READS:
        topics = [(named(request.topic), SUB)] if "topic" in request.DESCRIPTOR.fields_by_name else []
        groups = [(retry_topic(named(request.group)), SUB)] if request.HasField("group") else []
        return [*topics, *groups]
    return ()


def _of_settings(settings: pb.Settings) -> _Wanted:
    if settings.WhichOneof("pub_sub") != "subscription":
        return [(named(topic), PUB) for topic in settings.publishing.topics]
    topics = [(named(entry.topic), SUB) for entry in settings.subscription.subscriptions]
    return [*topics, (retry_topic(named(settings.subscription.group)), SUB)]
