"""The queue of a message group, as RocketMQ 5.5.0's proxy chose it (docs/wire.md 18.6)."""

import json
from pathlib import Path

from lockstep.protocol.selector import queue_of_group

RECORDED = Path(__file__).parent.parent / "vectors" / "message-groups-5.5.0.json"


def test_recorded_groups() -> None:
    """Fifty groups, among them two with one hash, and characters of two UTF-16 units."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert len(recorded["groups"]) == 50
    for group, places in recorded["groups"].items():
        assert [queue_of_group(group, count) for count in recorded["queues"]] == places, group
        assert queue_of_group(group, 1) == 0
