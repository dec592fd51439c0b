"""A quiet client beside an attack: `python -m scripts.hostile.probe PORT PID` sends a cheap request every 3 ms.

It is a process, so that the work of an attack does not delay its clock. It reads the broker's processor time around
each request: on a shared machine the wall clock also counts other programs. It ends when its stdin closes, and prints
its findings as one JSON object.
"""

import contextlib
import json
import select
import socket
import statistics
import sys
import time
from pathlib import Path

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.frame import FrameDecoder
from scripts.hostile.peer import json_request

PAUSE_S = 0.003
ANSWER_TIMEOUT_S = 120.0
REQUEST = json_request(RequestCode.GET_MAX_OFFSET, {"topic": "probe", "queueId": 0})


class Probe:
    def __init__(self, port: int, pid: int) -> None:
        self._peer = socket.create_connection(("127.0.0.1", port))
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer.settimeout(ANSWER_TIMEOUT_S)
        self._cpu = Path(f"/proc/{pid}/schedstat")
        self.answer_ms: list[float] = []
        self.cpu_ms: list[float] = []
        self.failure = ""

    def broker_cpu_ms(self) -> float:
        """CPU time of the broker's main thread so far."""
        return int(self._cpu.read_text().split()[0]) / 1e6

    def ask(self) -> None:
        cpu_before, start = self.broker_cpu_ms(), time.perf_counter()
        try:
            self._peer.sendall(REQUEST)
            decoder = FrameDecoder()
            while decoder.next_frame() is None:
                data = self._peer.recv(65536)
                if not data:
                    raise ConnectionError("the broker closed the connection of the probe")
                decoder.feed(data)
        except OSError as error:
            self.failure = str(error) or type(error).__name__
        self.answer_ms.append((time.perf_counter() - start) * 1000)
        with contextlib.suppress(OSError):  # a broker that has died has no CPU time
            self.cpu_ms.append(self.broker_cpu_ms() - cpu_before)

    def run(self) -> None:
        """Until stdin closes or the broker fails."""
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
    probe = Probe(int(sys.argv[1]), int(sys.argv[2]))
    probe.ask()
    print("ready", flush=True)
    probe.run()
    print(json.dumps(probe.findings()), flush=True)


if __name__ == "__main__":
    main()
