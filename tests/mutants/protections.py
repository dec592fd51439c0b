"""All protections of ordered consumption that `make mutants` takes out.

Add a protection with the rule it belongs to: name it, say what goes wrong without it, take it out by the smallest
change of a function (`edited`) or a table (`put`), and name the tests that must fail.
"""

from typing import Final

from tests.mutants.beside_order import BESIDE_ORDER
from tests.mutants.broker import BROKER
from tests.mutants.consuming import CONSUMING
from tests.mutants.fenced import FENCED
from tests.mutants.kept import KEPT
from tests.mutants.late import LATE
from tests.mutants.locks import LOCKS
from tests.mutants.members import MEMBERS
from tests.mutants.pop_members import POP_MEMBERS
from tests.mutants.popping import POPPING
from tests.mutants.protection import ROOT, Protection
from tests.mutants.sending import SENDING
from tests.mutants.unreadable import UNREADABLE

__all__ = ["BY_NAME", "PROTECTIONS", "ROOT", "Protection"]

PROTECTIONS: Final[tuple[Protection, ...]] = (
    *LOCKS, *FENCED, *CONSUMING, *MEMBERS, *LATE, *SENDING, *KEPT, *BESIDE_ORDER, *UNREADABLE, *BROKER, *POPPING,
    *POP_MEMBERS,
)  # fmt: skip
BY_NAME: Final = {protection.name: protection for protection in PROTECTIONS}
