"""What `--control-port` opens. It is a plug-in: what tests may do to a broker is no part of the broker."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from lockstep.broker.server import BrokerServer
from lockstep.remoting.settings import SettingError

__all__ = ["ControlPort", "control_port_plug_in"]

# The group in pyproject.toml. Its one entry makes a BrokerServer and the ControlPort for it.
_GROUP = "lockstep.control_port"


class ControlPort(Protocol):
    """A port beside the broker's. Start the broker first."""

    @property
    def address(self) -> str:
        """Host and port, once it is started."""

    async def start(self, port: int) -> None:
        """Listen. 0 picks a free port. Raises CannotListen."""

    def close(self) -> None: ...


def control_port_plug_in() -> Callable[..., tuple[BrokerServer, ControlPort]]:
    """The plug-in: a function of config, runtime, log and on_progress. Raises SettingError if none is installed."""
    for entry in entry_points(group=_GROUP):
        make: Callable[..., tuple[BrokerServer, ControlPort]] = entry.load()
        return make
    raise SettingError(f"--control-port: no installed distribution has the entry point {_GROUP}")
