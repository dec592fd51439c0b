"""How a broker in memory answers requests: at once."""

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, dispatch
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint

__all__ = ["answer_at_once"]


def answer_at_once(broker: Broker, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
    """The answer of a broker in memory."""
    return dispatch(BROKER_HANDLERS, broker, endpoint, command, endpoint.read_at_ms)
