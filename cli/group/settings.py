"""`lockstep group create` and `update`: how many retries a group has, and whether clients of RocketMQ 5 get order."""

from lockstep.cli.lookup import check_brokers
from lockstep.cli.output import CliError, StderrLog, note
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.names import check_group

__all__ = ["put_group"]


async def put_group(name_server: str, group: str, fifo: bool | None, retries: int | None, *, is_new: bool) -> None:
    """Raises CliError when a group that is new exists, or one that is not new does not."""
    check_group(group)
    async with AdminClient(name_server=name_server, log=StderrLog(verbose=False)) as admin:
        await check_brokers(admin)
        exists = group in await admin.group_configs()
        if exists and is_new:
            raise CliError(f"group {group!r} exists: `lockstep group update` changes it")
        if not exists and not is_new:
            raise CliError(f"there is no group {group!r}: `lockstep group create` makes it")
        await admin.put_group(group, in_order=fifo, retries=retries)
        settings = (await admin.group_configs())[group]
    in_order = all(one.consume_message_orderly for one in settings)
    if fifo and not in_order:
        note("a broker is of RocketMQ 4: it keeps no order for clients of 5")
    retries_of = ", ".join(sorted({str(one.retry_max_times) for one in settings}))
    note(f"group {group} is {'in order' if in_order else 'not in order'}, with {retries_of} retries")
