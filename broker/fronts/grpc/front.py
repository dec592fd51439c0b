"""The front of RocketMQ 5's clients: the calls of apache.rocketmq.v2, by name. It knows no HTTP/2."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.grpc import acks, clients, receiving, routes, sending
from lockstep.broker.fronts.grpc.access import check_access
from lockstep.broker.fronts.grpc.call import Call, OnCall, answer_with
from lockstep.broker.fronts.grpc.failures import CallFailed, Failure, as_failure
from lockstep.broker.fronts.grpc.parts import CLIENT_ID, Parts
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import GrpcStatus, Nested, has_more_fields
from lockstep.store import StoreFull

__all__ = ["GrpcFront"]

_TELEMETRY: Final = "Telemetry"
_SEND: Final = "SendMessage"
_BROKEN_OFF: Final = "CANCELLED"  # by the client, or the end of its connection
# Above a message of the largest size: its properties, and what the call has beside it.
_BESIDE_BODY_BYTES: Final = 256 * 1024
# As in the other front: without them a healthy client would lose what it has.
_SPARED: Final = frozenset((_TELEMETRY, "Heartbeat", "NotifyClientTermination", "EndTransaction"))
# Of a send: each message takes some 15 us, a field some 40 ns.
_BATCH_MESSAGES_MAX: Final = 1024
_FIELDS_MAX: Final = 40_000  # above the keys that a message may have
_COUNTED_BYTES_MIN: Final = 256 * 1024
_COUNTED: Final = {
    pb.SendMessageRequest.MESSAGES_FIELD_NUMBER: {pb.Message.SYSTEM_PROPERTIES_FIELD_NUMBER: dict[int, Nested]()}
}
_CLIENT_ID_CHARACTERS_MAX: Final = 255


class _Method(NamedTuple):
    """Args:
    answer: Returns the answer; None: it comes later, or in several messages.
    """

    request: type[Any]
    response: type[Any]
    answer: Callable[[Parts, Call, Any, int], Any]


_METHODS: Final[Mapping[str, _Method]] = {
    "QueryRoute": _Method(pb.QueryRouteRequest, pb.QueryRouteResponse, routes.query_route),
    "Heartbeat": _Method(pb.HeartbeatRequest, pb.HeartbeatResponse, clients.heartbeat),
    _SEND: _Method(pb.SendMessageRequest, pb.SendMessageResponse, sending.send_message),
    "QueryAssignment": _Method(pb.QueryAssignmentRequest, pb.QueryAssignmentResponse, routes.query_assignment),
    "ReceiveMessage": _Method(pb.ReceiveMessageRequest, pb.ReceiveMessageResponse, receiving.receive_message),
    "AckMessage": _Method(pb.AckMessageRequest, pb.AckMessageResponse, acks.ack_message),
    "ForwardMessageToDeadLetterQueue": _Method(
        pb.ForwardMessageToDeadLetterQueueRequest,
        pb.ForwardMessageToDeadLetterQueueResponse,
        acks.forward_to_dead_letters,
    ),
    "EndTransaction": _Method(pb.EndTransactionRequest, pb.EndTransactionResponse, sending.end_transaction),
    "RecallMessage": _Method(pb.RecallMessageRequest, pb.RecallMessageResponse, sending.recall_message),
    "SyncLiteSubscription": _Method(
        pb.SyncLiteSubscriptionRequest,
        pb.SyncLiteSubscriptionResponse,
        clients.refuse_lite_topics,
    ),
    _TELEMETRY: _Method(pb.TelemetryCommand, pb.TelemetryCommand, clients.take_command),
    "NotifyClientTermination": _Method(
        pb.NotifyClientTerminationRequest,
        pb.NotifyClientTerminationResponse,
        clients.notify_client_termination,
    ),
    "ChangeInvisibleDuration": _Method(
        pb.ChangeInvisibleDurationRequest,
        pb.ChangeInvisibleDurationResponse,
        acks.change_invisible_duration,
    ),
}


class GrpcFront:
    """A `Service`.

    Args:
        after_read: Called when the calls of one read were handled: who waits for messages may have some now.
        may_request: Whether a peer may make one more request; True: one that is spared.
        before: Stands between the connections and the calls, for tests.
    """

    receive: OnCall

    def __init__(
        self,
        parts: Parts,
        after_read: Callable[[], None],
        may_request: Callable[[Any, int, bool], bool],
        before: Callable[[OnCall], OnCall] | None,
    ) -> None:
        self.parts = parts
        self.receive = self._receive if before is None else before(self._receive)
        self._may_request = may_request
        self._after_read = after_read

    def serves(self, method: str) -> bool:
        return method in _METHODS

    def keeps_open(self, method: str) -> bool:
        return method == _TELEMETRY

    def bytes_max(self, method: str) -> int:
        config = self.parts.broker.config
        if method == _SEND:
            return config.max_message_bytes + _BESIDE_BODY_BYTES
        return config.structured_body_bytes_max

    def may_begin(self, call: Call) -> bool:
        if call.method in _METHODS:  # what peers invent is no label of a metric
            self.parts.counts.under_way += 1
            call.on_end = self._count
        return self._may_request(call.peer, call.received_ms, call.method in _SPARED)

    def _count(self, call: Call, status: GrpcStatus | None) -> None:
        self.parts.counts.under_way -= 1
        if status is None:
            how = _BROKEN_OFF
        else:
            how = pb.Code.Name(call.code) if call.code and status is GrpcStatus.OK else status.name
        self.parts.counts.ended[call.method, how] += 1

    def refuse_busy(self, call: Call) -> None:
        """Clients make the call again a little later."""
        answer = _METHODS[call.method].response()
        answer.status.code = pb.TOO_MANY_REQUESTS
        answer.status.message = f"requests_per_second_max is {self.parts.broker.config.requests_per_second_max}"
        answer_with(call, answer)

    def _receive(self, call: Call, message: bytes, now_ms: int) -> None:
        """Handle a message of a client; answer, or fail as the client can read it."""
        method = _METHODS[call.method]
        try:
            answer = self._answer(method, call, message, now_ms)
        except CallFailed as why:
            call.finish(why.status, why.text)
            return
        except (Failure, Refused, StoreFull) as why:
            failure = why if isinstance(why, Failure) else as_failure(why)
            answer = method.response()
            answer.status.code, answer.status.message = failure.code, failure.text
            self.parts.broker.log.info(
                "call_refused", method=call.method, code=failure.code, reason=failure.text, peer=call.peer.address
            )
            if failure.rest:
                _send_stream(call, answer, failure)
                return
        except Exception as error:
            self.parts.broker.log.error("call_failed", method=call.method, peer=call.peer.address, exc_info=error)
            call.finish(GrpcStatus.INTERNAL, "a fault of the broker")
            return
        if answer is not None:
            if not answer.HasField("status"):
                answer.status.code, answer.status.message = pb.OK, "OK"
            answer_with(call, answer)

    def _answer(self, method: _Method, call: Call, message: bytes, now_ms: int) -> Any:
        broker = self.parts.broker
        # Before it is decoded: each empty message of a send has two bytes, and costs some 40 ns.
        if call.method == _SEND:
            _check_send(message, min(broker.config.batch_messages_max, _BATCH_MESSAGES_MAX))
        try:
            request = method.request.FromString(message)
        # protobuf's errors are of several kinds, and say no more.
        except Exception:
            raise CallFailed(GrpcStatus.INTERNAL, f"the message is no {method.request.DESCRIPTOR.name}") from None
        _check_client(call)
        if broker.acl is not None:
            check_access(broker.acl, call, request)
        return method.answer(self.parts, call, request, now_ms)

    def half_closed(self, call: Call, now_ms: int) -> None:
        """The client says no more in its telemetry: it is going."""
        call.on_gone(now_ms)
        call.finish()

    def after_read(self) -> None:
        self._after_read()

    def tick(self, now_ms: int) -> None:
        """Called every few seconds."""
        clients.expire_clients(self.parts, now_ms)

    def renew(self, now_ms: int) -> bool:
        """Called every few seconds, and again soon when it returns True."""
        return clients.renew(self.parts, now_ms)


def _send_stream(call: Call, status: Any, failure: Failure) -> None:
    call.code = failure.code
    for message in (status.SerializeToString(), *failure.rest):
        call.send(message)
    call.finish()


def _check_send(message: bytes, count_max: int) -> None:
    """Raises Failure for a request with too many messages, or with too many keys and properties in them."""
    if has_more_fields(message, count_max):
        raise Failure(pb.BAD_REQUEST, f"a batch may hold at most {count_max} messages (batch_messages_max)")
    # Those of a short request take less time than to count them.
    if len(message) > _COUNTED_BYTES_MIN and has_more_fields(message, _FIELDS_MAX, _COUNTED):
        raise Failure(pb.MESSAGE_PROPERTIES_TOO_LARGE, f"the messages have over {_FIELDS_MAX} fields")


def _check_client(call: Call) -> None:
    client_id = call.metadata.get(CLIENT_ID, "")
    if not client_id.strip():
        raise Failure(pb.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > _CLIENT_ID_CHARACTERS_MAX:
        raise Failure(pb.CLIENT_ID_REQUIRED, f"client id has over {_CLIENT_ID_CHARACTERS_MAX} characters")
