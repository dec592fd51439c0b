"""How a broker answers requests: sends of one read are stored together, everything else is handled at once."""

from collections.abc import Callable
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, dispatch
from lockstep.broker.fronts.remoting.send import new_send_run
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint

__all__ = ["answer_at_once", "sends_together", "store_waiting"]

_MAY_WAIT: Final = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2))


def sends_together(broker: Broker) -> Callable[[], None] | None:
    """Let the sends of one read wait for each other.

    With --flush sync they do not: each answer waits for a sync, which stores many anyway.

    Returns:
        What to call before the answers of a read leave; None: nothing.
    """
    if broker.durable is not None and broker.config.flush_sync:
        return None
    broker.send_run = new_send_run(broker)
    return broker.send_run.store


def store_waiting(broker: Broker, command: RemotingCommand) -> None:
    """Store the sends that wait, before a request that may look at them."""
    run = broker.send_run
    if run is not None and run.waiting and command.code not in _MAY_WAIT:
        run.store()


def answer_at_once(broker: Broker, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
    """The answer of a broker in memory."""
    store_waiting(broker, command)
    return dispatch(BROKER_HANDLERS, broker, endpoint, command, endpoint.read_at_ms)
