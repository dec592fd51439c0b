"""Tolerance: what a task goes on without when it asks all brokers, and for how long it waits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from lockstep.client.admin.at_once import at_once
from lockstep.client.errors import ClientError, NotLockstepError
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.errors import RemotingError

__all__ = ["FAILURES", "Tolerance", "no_answer_within"]

FAILURES: Final = (RemotingError, ClientError, ProtocolError, TimeoutError)  # of a question to a broker
R = TypeVar("R")


def no_answer_within(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


class Tolerance:
    """Leaves out brokers that fail, and remembers which. One that did not answer in time is not asked again.

    Args:
        wait_s: For all brokers together.
        gone: Brokers by name that are not asked, and why.
    """

    def __init__(self, wait_s: float, gone: Mapping[str, str]) -> None:
        self.wait_s = wait_s
        self.left_out: dict[str, str] = {}
        self._gone = dict(gone)

    async def ask(self, question: Callable[[str], Awaitable[R]], brokers: Mapping[str, str]) -> dict[str, R]:
        """Return the answers by name, in the order of `brokers`, which has the addresses.

        Raises:
            NotLockstepError: That of the first broker that is not Lockstep's: it has answered.
            Exception: That of the first broker, when all of them fail.
        """
        until = asyncio.get_running_loop().time() + self.wait_s

        async def one(name: str) -> R | Exception:
            if name in self._gone:
                return ClientError(self._gone[name])
            try:
                async with asyncio.timeout_at(until):
                    return await question(brokers[name])
            except NotLockstepError:
                raise
            except TimeoutError:
                self._gone[name] = no_answer_within(self.wait_s)
                return TimeoutError(self._gone[name])
            except FAILURES as error:
                return error

        answers = dict(zip(brokers, await at_once(one, brokers), strict=True))
        failed = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        if failed and len(failed) == len(answers):
            raise next(iter(failed.values()))
        self.left_out |= {name: str(error) for name, error in failed.items()}
        return {name: answer for name, answer in answers.items() if not isinstance(answer, Exception)}
