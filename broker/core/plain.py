"""What kernels need to store sends that are plain: what is the same for all of them, and where they may go."""

from collections.abc import Callable
from typing import Any, Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.peer import Peer
from lockstep.protocol.codes import FRAME_BYTES_MAX, HEADER_BYTES_MAX, TOPIC_LENGTH_MAX, Permission
from lockstep.protocol.kernels import PlainSends, SendSettings
from lockstep.protocol.messages.properties import CLUSTER, NAME_END
from lockstep.protocol.names import RESERVED_TOPICS, RETRY_PREFIX

__all__ = ["IPV4_BYTES", "READ_SENDS_MAX", "by_kernel", "next_of_plain", "plain_settings"]

# Some 0.5 ms. Then other connections may have their turn.
READ_SENDS_MAX: Final = 64
IPV4_BYTES: Final = 4
_WRITE: Final = int(Permission.WRITE)


def by_kernel(
    broker: Broker, peer: Peer, kernel: Callable[..., PlainSends | None], *arguments: Any
) -> PlainSends | None:
    """What a kernel makes of sends of a peer; None when it refuses them or fails.

    It changes nothing, so after a fault of its own the bytes go the usual way, which answers with a code.
    """
    try:
        return kernel(*arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    # A panic of a native kernel is no Exception.
    except BaseException as error:
        broker.log.error("plain_sends_failed", peer=peer.address, exc_info=error)
        return None


def plain_settings(broker: Broker) -> SendSettings | None:
    """Those of the broker's configuration; None when no send is plain."""
    messages, config = broker.messages, broker.config
    store = messages.store
    if not config.broker_permission & _WRITE or len(store.store_host) != IPV4_BYTES:
        return None
    return SendSettings(
        f"{CLUSTER}{NAME_END}{config.cluster}",
        messages.message_id_prefix.encode(),
        store.store_host,
        store.store_port,
        min(config.max_message_bytes, FRAME_BYTES_MAX // 2),
        min(config.header_bytes_max, HEADER_BYTES_MAX),
        READ_SENDS_MAX,
    )


def next_of_plain(broker: Broker, topic: str, queue_id: int) -> int | None:
    """The offset of the next message of a queue. None: `send_target` has a rule for it, or it has had no message."""
    config = broker.catalog.topics.get(topic)
    if config is None or topic in RESERVED_TOPICS or topic.startswith(RETRY_PREFIX):
        return None
    if len(topic) > TOPIC_LENGTH_MAX:
        return None
    if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
        return None
    return broker.messages.store.next_offset(topic, queue_id)
