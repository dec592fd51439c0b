"""Plain sends, from the bytes of a read to the bytes of their answers (lockstep.protocol.kernels)."""

from collections.abc import Callable
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.protocol.codes import FRAME_BYTES_MAX, HEADER_BYTES_MAX, TOPIC_LENGTH_MAX, Permission
from lockstep.protocol.kernels import PlainSends, SendSettings, may_be_plain_send, take_sends
from lockstep.protocol.messages.properties import CLUSTER, NAME_END
from lockstep.protocol.names import RESERVED_TOPICS, RETRY_PREFIX
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint, Taken

__all__ = ["PlainSendLane"]

# Some 0.5 ms. Then other connections may have their turn.
_COUNT_MAX: Final = 64
_WRITE: Final = int(Permission.WRITE)
_IPV4_BYTES: Final = 4


class PlainSendLane:
    """Handles the plain sends at the front of a read. All others, and whatever follows them, go the usual way.

    Not for a broker that looks at each request or waits before it answers: with access rules, a limit of requests,
    --flush sync, or an interceptor. `Messages.plain_sends` counts both.
    """

    def __init__(self, broker: Broker, leave_now: Callable[[], bool]) -> None:
        """`leave_now`: whether the answer to a message that is stored now waits for nothing."""
        self._broker = broker
        self._leave_now = leave_now
        self._config: BrokerConfig | None = None
        self._settings: SendSettings | None = None  # None: no send is plain

    def __call__(self, endpoint: Endpoint, data: bytes, start: int) -> Taken | None:
        broker = self._broker
        # A look at a few bytes first: most requests are no sends.
        if not may_be_plain_send(data, start):
            return None
        if broker.config is not self._config:
            self._config, self._settings = broker.config, self._new_settings(broker.config)
        sends = self._taken(endpoint, data, start)
        if sends is None or not broker.messages.put_encoded(sends, endpoint.read_at_ms):
            broker.messages.plain_sends["refused"] += 1
            return Taken(start, 0, b"", more=False)
        broker.messages.plain_sends["taken"] += sends.send_count
        end, send_count, _, answers, _ = sends
        return new_tuple(Taken, (end, send_count, answers, send_count == _COUNT_MAX))

    def _taken(self, endpoint: Endpoint, data: bytes, start: int) -> PlainSends | None:
        """What becomes of the sends; nothing is stored yet."""
        broker = self._broker
        born = broker.members.born_host(endpoint)
        # What is stored here is answered at once. So while answers wait, no send is plain.
        if self._settings is None or len(born[0]) != _IPV4_BYTES or not self._leave_now():
            return None
        log_offset = broker.messages.store.max_commit_log_offset
        try:
            return take_sends(data, start, self._settings, self._next_offset, endpoint.read_at_ms, born, log_offset)
        except (KeyboardInterrupt, SystemExit):
            raise
        # A kernel changes nothing, so after a fault of its own the bytes go the usual way, which answers with a code. A
        # panic of the native one is no Exception.
        except BaseException as error:
            broker.log.error("plain_sends_failed", peer=endpoint.address, exc_info=error)
            return None

    def _new_settings(self, config: BrokerConfig) -> SendSettings | None:
        messages = self._broker.messages
        store = messages.store
        if not config.broker_permission & _WRITE or len(store.store_host) != _IPV4_BYTES:
            return None
        return SendSettings(
            f"{CLUSTER}{NAME_END}{config.cluster}",
            messages.message_id_prefix.encode(),
            store.store_host,
            store.store_port,
            min(config.max_message_bytes, FRAME_BYTES_MAX // 2),
            min(config.header_bytes_max, HEADER_BYTES_MAX),
            _COUNT_MAX,
        )

    def _next_offset(self, topic: str, queue_id: int) -> int | None:
        """As `send_target`, for sends that have no rule of their own."""
        config = self._broker.catalog.topics.get(topic)
        if config is None or topic in RESERVED_TOPICS or topic.startswith(RETRY_PREFIX):
            return None
        if len(topic) > TOPIC_LENGTH_MAX:
            return None
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            return None
        return self._broker.messages.store.next_offset(topic, queue_id)
