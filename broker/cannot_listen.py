"""The error of a port that cannot be opened."""

import errno

from lockstep.remoting.settings import Address

__all__ = ["CannotListen"]


class CannotListen(Exception):
    """A port cannot be opened. The text is one line: the address, the cause, what to do.

    Attributes:
        in_use: Another socket has it.
    """

    def __init__(self, purpose: str, option: str, host: str, port: int, error: OSError) -> None:
        self.in_use = error.errno == errno.EADDRINUSE
        if self.in_use:
            text = f"port {port} on {host} is in use; choose another for the {purpose} with {option} (0: any free one)"
        else:
            text = f"the {purpose} cannot listen on {Address(host, port)}: {error.strerror or error}"
        super().__init__(text)
