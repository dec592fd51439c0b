"""A client of a broker's control port: one call at a time, a JSON object a line."""

import json
import socket
import threading
from typing import Any, Final

from lockstep.testing.process import BrokerFailed, BrokerProcess

__all__ = ["ControlConnection"]

_TIMEOUT_S: Final = 30


class ControlConnection:
    """Safe for several threads. A call that Ctrl-C or a timeout interrupts does not disturb later calls."""

    def __init__(self, process: BrokerProcess) -> None:
        """Raises BrokerFailed."""
        self._process = process
        self._lock = threading.Lock()
        self._connect()

    def _connect(self) -> None:
        host, _, port = self._process.addresses.control.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        except OSError as error:
            raise self._failed(f"its control port: {error}") from None
        self._answers = self._socket.makefile("rb")
        self._interrupted = False

    def call(self, name: str, **arguments: Any) -> Any:
        """Raises ValueError for a call that the broker refuses, BrokerFailed when the broker has ended."""
        line = json.dumps({"call": name, **arguments}).encode() + b"\n"
        with self._lock:
            if self._interrupted:  # its answer may still arrive on the old connection
                self.close()
                self._connect()
            self._interrupted = True
            try:
                self._socket.sendall(line)
                answer = self._answers.readline()
            except OSError as error:
                raise self._failed(str(error)) from None
            self._interrupted = False
        if not answer:
            raise self._failed("it closed the control connection")
        reply = json.loads(answer)
        if not reply["ok"]:
            raise ValueError(reply["error"])
        return reply["result"]

    def _failed(self, reason: str) -> BrokerFailed:
        if self._process.wait(1) is None:  # its end may be known a moment after its connections closed
            return BrokerFailed(f"the broker does not answer: {reason}")
        return BrokerFailed(self._process.tail())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
