"""Why our answers to requests of POP may differ from RocketMQ 5.5's: all of it, one by one.

One time differs, too: see `REVIVED_EARLIER_S` in scenes.py.
"""

from typing import Final

from tests.differential.explanations import Explanation

__all__ = ["POP_DIFFERENCES"]

POP_DIFFERENCES: Final[tuple[Explanation, ...]] = (
    Explanation("a mode is POP or PULL; RocketMQ keeps another one as none", codes=(401,), case="invalid/mode"),
)  # fmt: skip
