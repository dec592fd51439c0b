"""The broker of a test session: started when needed, reset between tests, its failure reported in full once."""

import re
from collections.abc import Sequence
from typing import Final

import pytest

from lockstep.testing.broker import LockstepBroker
from lockstep.testing.control import ControlConnection
from lockstep.testing.process import Addresses, BrokerFailed, BrokerProcess

__all__ = ["BrokerSession"]

_QUEUES: Final = 4  # RocketMQ's defaultTopicQueueNums
# A free port for RocketMQ 5's clients, where the extra is installed.
_GRPC: Final = ("-D", "grpc_port=0", "-D", "grpc_optional=true")
_ABOUT_GRPC: Final = re.compile(r"--grpc|(-D)?grpc_(port|optional)=")


class BrokerSession:
    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._process: BrokerProcess | None = None
        self._control: ControlConnection | None = None
        self._test = ""
        self._failed_in = ""  # the test that reported why there is no broker

    @property
    def addresses(self) -> Addresses:
        """Addresses of the broker, its name server and its control port. Raises BrokerFailed."""
        return self._started()[0].addresses

    @property
    def process_id(self) -> int:
        """Raises BrokerFailed."""
        return self._started()[0].pid

    def begin_test(self, name: str, test: str) -> LockstepBroker:
        """The broker for one test, with a new topic of this name. Fails the test when there is no broker."""
        self._test = test
        if self._failed_in:
            pytest.fail(f"there is no broker; {self._failed_in} says why", pytrace=False)
        try:
            return self._view(name)
        except (BrokerFailed, ValueError) as error:
            self._failed_in, reason = self._test, str(error)
        pytest.fail(reason, pytrace=False)

    def _view(self, name: str) -> LockstepBroker:
        process, control = self._started()
        control.call("reset")
        control.call("create_topic", topic=name, queues=_QUEUES)
        return LockstepBroker(control, process.addresses, name, f"{name}-group")

    def end_test(self) -> None:
        """Remove pending errors, delays and a closed port at the end of a test."""
        try:
            self._started()[1].call("reset")
        except (BrokerFailed, ValueError) as error:
            self._failed_in, reason = self._test, str(error)
        else:
            return
        pytest.fail(reason, pytrace=False)

    def _started(self) -> tuple[BrokerProcess, ControlConnection]:
        if self._process is None:
            grpc = () if any(_ABOUT_GRPC.match(option) for option in self._options) else _GRPC
            options = ["--log-level", "warning", *grpc, *self._options, "--control-port", "0"]
            process = BrokerProcess(*options, end_with_us=True)
            if not (process.address and process.name_server and process.addresses.control):
                process.end()
                raise BrokerFailed("the plugin needs a broker and a name server in one process; change the options")
            self._process = process
        if self._control is None:
            self._control = ControlConnection(self._process)
        return self._process, self._control

    def end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.end()
