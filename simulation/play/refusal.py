"""What the user is told when an act cannot be done."""

from typing import Any

__all__ = ["RefusedError"]


class RefusedError(ValueError):
    """What was asked cannot be done. The text is a sentence for the user.

    Args:
        said: what the sentence is made of, if it has values.
    """

    def __init__(self, text: str, said: Any = None) -> None:
        super().__init__(text)
        self.said = text if said is None else said
