"""All cases of gRPC: those that last long first."""

from typing import Final

from tests.differential.grpc.calls import CALLS
from tests.differential.grpc.orders import ORDERS
from tests.differential.grpc.receives import RECEIVES
from tests.differential.grpc.sends import SENDS
from tests.differential.grpc.steps import Case

__all__ = ["CASES"]

CASES: Final[tuple[Case, ...]] = (*reversed(ORDERS), *reversed(RECEIVES), *reversed(SENDS), *CALLS)
