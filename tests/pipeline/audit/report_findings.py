"""Findings as an audit gives them, made up: a takeover, and a history in which everything went wrong."""

from lockstep.pipeline.report import AuditFindings

BEGIN_MS = 1_700_000_000_000
QUEUE = {"history": "", "group": "board", "topic": "flights", "broker": "b"}
CLIENTS = ("10.0.0.1@101#1", "10.0.0.2@102#2", "10.0.0.3@103#3")


def clean() -> AuditFindings:
    """Three consumers, eight queues; the second dies at 12 s and the others take over after 10 s."""
    summary = dict.fromkeys(("dead_lettered", "lost", "before_start", "skipped", "emptied", "violations"), 0)
    summary |= {"sent": 1200, "handled": 1200, "attempts": 1240, "duplicates": 40, "queues": 8, "keys": 77}
    summary |= {"handovers": 3, "copies": 0, "torn_lines": 1, "broken_lines": 0}
    found = AuditFindings("", {"history": "", **summary, "in_order": True})
    for queue_id in range(8):
        owner = queue_id * 3 // 8
        dies = owner == 1
        found.owners.append(owned(queue_id, CLIENTS[owner], 1, 0, 12_000 if dies else 40_000))
        if dies:
            found.owners.append(owned(queue_id, CLIENTS[2 * (queue_id % 2)], 1, 22_000 + 300 * queue_id, 40_000))
            times = {"at_ms": BEGIN_MS + 22_000 + 300 * queue_id, "duration_ms": 10_000.0 + 300 * queue_id}
            clients = {"from_client_id": CLIENTS[1], "to_client_id": CLIENTS[2 * (queue_id % 2)]}
            found.handovers.append({**QUEUE, "queue_id": queue_id, **clients, **times})
        for measure, middle in (("handling", 0.4), ("lag", 35.0)):
            numbers = {
                "messages": 150,
                "p50_ms": middle,
                "p90_ms": 3 * middle,
                "p99_ms": 9 * middle,
                "max_ms": 10_400.0,
            }
            found.latency.append({**QUEUE, "queue_id": queue_id, "measure": measure, **numbers})
        found.lag += [
            {"at_ms": BEGIN_MS + second * 1000, **QUEUE, "queue_id": queue_id,
             "lag": 30 * min(second - 12, 10) if dies and 12 < second < 26 else 5 + (second * queue_id) % 7}
            for second in range(41)
        ]  # fmt: skip
    found.rates = [
        {"second_ms": BEGIN_MS + second * 1000, "attempts": 30 + second % 5, "repeats": 13 if 22 <= second < 25 else 0}
        for second in range(41)
        if second != 30
    ]
    found.duplicates = [{"cause": "takeover", "messages": 40}]
    found.broken_lines = [{"file": "file:///x/consumer-B.jsonl", "line": 412, "torn": True, "text": '{"event":"hand'}]
    return found


def corrupted() -> AuditFindings:
    """The same with an overlap of 4 s on queue 5, a swap and a lost message."""
    found = clean()
    found.history = "corrupted"
    found.owners = [bar for bar in found.owners if bar["queue_id"] != 4] + [
        owned(4, CLIENTS[1], 1, 0, 26_000, overlaps=2),
        owned(4, CLIENTS[0], 1, 22_000, 40_000, overlaps=2),
    ]
    for kind, rule, queue_id, at_ms in (
        ("nonmonotonic-poll", "a", 2, 8_000),
        ("overlap", "c", 4, 22_500),
        ("overlap", "c", 4, 24_000),
        ("lost-write", "d", 6, 31_000),
    ):
        found.violations.append({
            **QUEUE, "queue_id": queue_id, "kind": kind, "rule": rule, "key": "N14228", "offsets": [17, 18],
            "processes": [CLIENTS[0]], "times_ms": [BEGIN_MS + at_ms, None],
            "places": ["file:///x/consumer-A.jsonl:17", "file:///x/consumer-A.jsonl:18"],
            "evidence": "key N14228: offset 17 <was> handled after offset 18",
        })  # fmt: skip
    counts = {("a", "nonmonotonic-poll"): 1, ("c", "overlap"): 2, ("d", "lost-write"): 1}
    found.kinds = [
        {"rule": rule, "kind": kind, "undecided": False, "findings": n} for (rule, kind), n in counts.items()
    ]
    found.summary |= {"history": "corrupted", "violations": 4, "lost": 1, "in_order": False}
    return found


def owned(
    queue_id: int, client_id: str, period: int, begin_ms: int, end_ms: int, overlaps: int = 0
) -> dict[str, object]:
    """A row of the table `owners`, times after BEGIN_MS."""
    return {
        **QUEUE, "queue_id": queue_id, "client_id": client_id, "period": period, "from_ms": BEGIN_MS + begin_ms,
        "to_ms": BEGIN_MS + end_ms, "first_offset": 0, "last_offset": 149, "attempts": 150, "overlaps": overlaps,
    }  # fmt: skip
