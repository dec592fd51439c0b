"""The plugin's end of a broker's control port: one call at a time, a JSON object a line."""

import json
import socket
import threading
from typing import Any, Final

from lockstep.testing.process import BrokerFailed, BrokerProcess

__all__ = ["ControlConnection"]

_TIMEOUT_S: Final = 30


class ControlConnection:
    """Tests may call from several threads. A call that is interrupted, by Ctrl-C or a timeout, spoils no later one."""

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
        """Raises ValueError for a call that the broker refuses, and BrokerFailed when the broker is gone."""
        line = json.dumps({"call": name, **arguments}).encode() + b"\n"
        with self._lock:
            if self._interrupted:  # an answer that nobody waits for may be on its way
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
        return BrokerFailed(self._process.how_it_ended() or f"the broker does not answer: {reason}")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
