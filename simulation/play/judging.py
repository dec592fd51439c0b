"""The judge of a played run, in a copy of the process: its seconds must hold up neither the run nor the user."""

import os
import pickle
import signal
import time
import traceback
from contextlib import suppress
from typing import Final

from lockstep.simulation.play.verdict import Judged, Verdict

__all__ = ["Judging"]

_BYTES: Final = 1 << 16
_REST_S: Final = 0.5  # between two copies


class Judging:
    """Asks the judge about a run again and again, one copy at a time.

    Args:
        shut: a descriptor that a copy must not keep open.
    """

    def __init__(self, verdict: Verdict, shut: int) -> None:
        self._verdict = verdict
        self._shut = shut
        self._pid = 0  # of the copy; 0: there is none
        self._began_s = 0.0
        self._over = self._asked_over = self._died = False
        self.judged_ms = 0  # until when the run was judged
        self.answers: int | None = None  # the descriptor that is readable when the copy has judged

    @property
    def is_judged(self) -> bool:
        """Whether all that happened is judged, or never will be."""
        return self._died or not (self._pid or self._verdict.is_behind)

    def ask(self, *, over: bool = False, now: bool = False) -> None:
        """Let it be judged, if it is time for it.

        Args:
            over: the run is over.
            now: also if the judge should rest.
        """
        self._over |= over
        rested = time.monotonic() >= self._began_s + _REST_S
        wanted = (self._over and not self._asked_over) or now or (rested and self._verdict.is_due)
        if wanted and not self._pid and not self._died:
            self._begin()

    def _begin(self) -> None:
        self._began_s, self._asked_over = time.monotonic(), self._over
        self.answers, told = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(told)
            return
        try:
            os.close(self._shut)
            judged = self._verdict.read(over=self._over, now=True)
            with os.fdopen(told, "wb") as file:
                pickle.dump((judged, self._verdict.state), file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def collect(self) -> Judged | None:
        """What the copy found; None: it died. `answers` is readable."""
        assert self.answers is not None
        data = b""
        while part := os.read(self.answers, _BYTES):
            data += part
        self.close()
        if not data:
            self._died = True  # another copy would die of the same, again and again
            return None
        judged, self._verdict.state = pickle.loads(data)
        found = Judged(*judged)
        self.judged_ms = found.judged_ms
        self.ask()
        return found

    def close(self) -> None:
        """End the copy."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        if self.answers is not None:
            os.close(self.answers)
            self.answers = None
