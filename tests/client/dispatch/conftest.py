import pytest

from lockstep.client.consumer.dispatch import straight
from lockstep.protocol.native import NATIVE
from tests.client.dispatch.consume_service import Service

WITH_NATIVE = pytest.mark.skipif(NATIVE is None, reason="no native part: make native")


@pytest.fixture(params=["straight", pytest.param("native", marks=WITH_NATIVE), "watched"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runs with calls that nobody watches, made by either arm, and again with watched ones."""
    monkeypatch.setattr(Service, "watches_calls", request.param == "watched")
    if request.param == "straight":
        monkeypatch.setattr(straight, "CALL_EACH", None)
