"""Names of version ordinals."""

from lockstep.protocol.codes import PROTOCOL_VERSION
from lockstep.protocol.versions import version_name
from tests.rows import by_row


@by_row("ordinal, name",
    [(0, "V3_0_0_SNAPSHOT"), (1, "V3_0_0_ALPHA1"), (14, "V3_0_0_BETA9"), (15, "V3_0_0_FINAL"), (28, "V3_0_7_SNAPSHOT"),
     (37, "V3_0_11"), (62, "V3_1_8_SNAPSHOT"), (63, "V3_1_8"), (121, "V3_4_9"), (213, "V4_0_0"), (317, "V4_5_2"),
     (333, "V4_6_0"), (401, "V4_9_4"), (PROTOCOL_VERSION, "V4_9_8"), (413, "V5_0_0"), (611, "V5_9_9"),
     (612, "HIGHER_VERSION"), (2**31, "HIGHER_VERSION"), (-1, "-1")])  # fmt: skip
def test_version_names(ordinal: int, name: str) -> None:
    """The ordinals of wire.md 1.4 and the edges of the list."""
    assert version_name(ordinal) == name
