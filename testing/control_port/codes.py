"""What tests call a request: its code or its name, or the name of a gRPC call."""

from lockstep.protocol.codes import RequestCode
from lockstep.testing.control_port.faults import Code

__all__ = ["code_of"]


def code_of(wanted: Code) -> Code:
    """The request code of 41 or "LOCK_BATCH_MQ"; "AckMessage" as it is. Raises ValueError for an unknown name."""
    if isinstance(wanted, int):
        return wanted
    if wanted in RequestCode.__members__:
        return int(RequestCode[wanted])
    try:
        from lockstep.testing.control_port.grpc_faults import CALLS  # few tests need it
    except ImportError as error:
        calls, other = frozenset[str](), f"; for gRPC's calls install 'lockstep-mq[grpc]' ({error})"
    else:
        calls, other = CALLS, ", or of a gRPC call, such as 'AckMessage'"
    if wanted in calls:
        return wanted
    raise ValueError(f"unknown request {wanted!r}; use a name of RocketMQ's RequestCode, such as 'PULL_MESSAGE'{other}")
