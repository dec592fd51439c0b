"""How a handler says no from any depth: with the code and the remark of the reply."""

from lockstep.protocol.codes import ResponseCode

__all__ = ["Refusal"]


class Refusal(Exception):
    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
