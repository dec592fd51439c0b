"""A quiet client beside an attack: `python -m scripts.hostile.probe PORT PID broker` sends a cheap request every 3 ms.

With `console` it asks a console for its script. It is a process, so that the work of an attack does not delay its
clock. It reads the processor time of the process PID around each request: on a shared machine the wall clock also
counts other programs. It ends when its stdin closes, and prints its findings as one JSON object.
"""

import contextlib
import json
import re
import select
import socket
import statistics
import sys
import time
from pathlib import Path

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.frame import FrameDecoder
from lockstep.testing.peer import json_request

PAUSE_S = 0.003
ANSWER_TIMEOUT_S = 120.0
REQUEST = json_request(RequestCode.GET_MAX_OFFSET, {"topic": "probe", "queueId": 0})


PAGE_REQUEST = b"GET /static/console.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class HttpDecoder:
    """Finds the ends of answers that say their length."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> None:
        self._received += data

    def next_frame(self) -> bytes | None:
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = LENGTH.search(head + end)
        if not end or length is None or len(body) < int(length[1]):
            return None
        self._received = body[int(length[1]) :]
        return head


class Probe:
    def __init__(self, port: int, pid: int, is_console: bool) -> None:
        self._request = PAGE_REQUEST if is_console else REQUEST
        self._decoder: type[HttpDecoder | FrameDecoder] = HttpDecoder if is_console else FrameDecoder
        self._peer = socket.create_connection(("127.0.0.1", port))
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer.settimeout(ANSWER_TIMEOUT_S)
        self._cpu = Path(f"/proc/{pid}/schedstat")
        self.answer_ms: list[float] = []
        self.cpu_ms: list[float] = []
        self.failure = ""

    def spent_cpu_ms(self) -> float:
        """CPU time of the process's main thread so far."""
        return int(self._cpu.read_text().split()[0]) / 1e6

    def ask(self) -> None:
        cpu_before, start = self.spent_cpu_ms(), time.perf_counter()
        try:
            self._peer.sendall(self._request)
            decoder = self._decoder()
            while decoder.next_frame() is None:
                data = self._peer.recv(65536)
                if not data:
                    raise ConnectionError("the connection of the probe was closed")
                decoder.feed(data)
        except OSError as error:
            self.failure = str(error) or type(error).__name__
        self.answer_ms.append((time.perf_counter() - start) * 1000)
        with contextlib.suppress(OSError):  # a process that has died has no CPU time
            self.cpu_ms.append(self.spent_cpu_ms() - cpu_before)

    def run(self) -> None:
        """Until stdin closes or an answer fails."""
        while not self.failure and not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            self.ask()

    def findings(self) -> dict[str, object]:
        return {
            "asked": len(self.answer_ms),
            "p50_ms": round(statistics.median(self.answer_ms), 3),
            "worst_ms": round(max(self.answer_ms), 1),
            "worst_cpu_ms": round(max(self.cpu_ms, default=0.0), 1),
            "failure": self.failure,
        }


def main() -> None:
    probe = Probe(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "console")
    probe.ask()
    print("ready", flush=True)
    probe.run()
    print(json.dumps(probe.findings()), flush=True)


if __name__ == "__main__":
    main()
