"""`header_encoding`: how the peer of a test writes its headers, by turns (`tests.tiers`)."""

import pytest

from tests.broker.helpers import ENCODINGS
from tests.tiers import variants

_BY_NAME = {encoding.name: encoding for encoding in ENCODINGS}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The codecs have tests of their own in tests/protocol: what the broker answers is the same behind each."""
    if "header_encoding" in metafunc.fixturenames:
        names = variants(metafunc.config, metafunc.definition, list(_BY_NAME))
        metafunc.parametrize("header_encoding", [_BY_NAME[name] for name in names], ids=names)
