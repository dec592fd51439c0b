"""All lessons, in the order in which a person takes them."""

from typing import Final

from lockstep.simulation.play.lessons import locks, messages, owners
from lockstep.simulation.play.lessons.lesson import Lesson

__all__ = ["LESSONS"]

_ORDER: Final = (
    "key", "owner", "suspend", "ring", "killed", "leaves", "again", "joins", "belief", "silent", "zombie", "fence",
    "restart", "concurrent", "fifo",
)  # fmt: skip
_ALL: Final = {one.key: one for one in (*locks.LESSONS, *messages.LESSONS, *owners.LESSONS)}
LESSONS: Final[dict[str, Lesson]] = {key: _ALL[key] for key in _ORDER}
