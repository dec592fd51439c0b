import pytest

from tests.client.dispatch.consume_service import Service


@pytest.fixture(params=["straight", "watched"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runs with calls that nobody watches, which are made in one loop, and again with watched ones."""
    monkeypatch.setattr(Service, "watches_calls", request.param == "watched")
