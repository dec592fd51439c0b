"""`lockstep group deliveries`: prints who has which messages of a group that pops in order, and until when."""

from typing import Any

from lockstep.cli.lookup import check_brokers
from lockstep.cli.output import OutputFormat, StderrLog, date_time, print_rows
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.bodies.pop import DeliveryRow
from lockstep.protocol.names import check_group

__all__ = ["DELIVERIES", "delivery_json", "delivery_texts", "list_deliveries"]

DELIVERIES = ("queue", "offset", "key_hash", "client", "popped", "visible", "times_before")


async def list_deliveries(name_server: str, group: str, output: OutputFormat) -> None:
    """Raises NotLockstepError."""
    check_group(group)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        rows = (await admin.list_deliveries(group)).rows
        if not rows:
            await check_brokers(admin)
    if output is OutputFormat.JSON:
        print_rows((), [delivery_json(row) for row in rows], output)
    else:
        print_rows(DELIVERIES, [delivery_texts(row) for row in rows], output)


def delivery_json(row: DeliveryRow) -> dict[str, Any]:
    return {
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue_id": row.queue.queue_id,
        "offset": row.queue_offset,
        "key_hash": row.key_hash,
        "client": row.client_id,
        "popped_ms": row.pop_ms,
        "visible_ms": row.visible_ms,
        "times_before": row.times_before,
    }


def delivery_texts(row: DeliveryRow) -> dict[str, Any]:
    return {
        "queue": str(row.queue),
        "offset": row.queue_offset,
        "key_hash": None if row.key_hash is None else f"{row.key_hash:08x}",
        "client": row.client_id,
        "popped": date_time(row.pop_ms),
        "visible": date_time(row.visible_ms),
        "times_before": row.times_before,
    }
