"""Plain sends, from the bytes of a read to the bytes of their answers (lockstep.protocol.kernels)."""

from collections.abc import Callable
from functools import partial

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.plain import IPV4_BYTES, READ_SENDS_MAX, by_kernel, next_of_plain, plain_settings
from lockstep.protocol.kernels import PlainSends, SendSettings, may_be_plain_send, take_sends
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint, Taken

__all__ = ["PlainSendLane"]


class PlainSendLane:
    """Handles the plain sends at the front of a read. All others, and whatever follows them, go the usual way.

    Not for a broker that looks at each request or waits before it answers: with access rules, a limit of requests,
    --flush sync, or an interceptor. `Messages.plain_sends` counts both.
    """

    def __init__(self, broker: Broker, leave_now: Callable[[], bool]) -> None:
        """`leave_now`: whether the answer to a message that is stored now waits for nothing."""
        self._broker = broker
        self._leave_now = leave_now
        self._next_offset = partial(next_of_plain, broker)
        self._config: BrokerConfig | None = None
        self._settings: SendSettings | None = None  # None: no send is plain

    def __call__(self, endpoint: Endpoint, data: bytes, start: int) -> Taken | None:
        broker = self._broker
        # A look at a few bytes first: most requests are no sends.
        if not may_be_plain_send(data, start):
            return None
        if broker.config is not self._config:
            self._config, self._settings = broker.config, plain_settings(broker)
        sends = self._taken(endpoint, data, start)
        if sends is None or not broker.messages.put_encoded(sends, endpoint.read_at_ms):
            broker.messages.plain_sends["refused"] += 1
            return Taken(start, 0, b"", more=False)
        broker.messages.plain_sends["taken"] += sends.send_count
        end, send_count, _, answers, _ = sends
        return new_tuple(Taken, (end, send_count, answers, send_count == READ_SENDS_MAX))

    def _taken(self, endpoint: Endpoint, data: bytes, start: int) -> PlainSends | None:
        """What becomes of the sends; nothing is stored yet."""
        broker = self._broker
        born = broker.members.born_host(endpoint)
        # What is stored here is answered at once. So while answers wait, no send is plain.
        if self._settings is None or len(born[0]) != IPV4_BYTES or not self._leave_now():
            return None
        log_offset = broker.messages.store.max_commit_log_offset
        now_ms = endpoint.read_at_ms
        return by_kernel(
            broker, endpoint, take_sends, data, start, self._settings, self._next_offset, now_ms, born, log_offset
        )
