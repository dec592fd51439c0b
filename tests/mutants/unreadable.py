"""Protections against messages that cannot be read, and bodies that grow when they are unpacked."""

from typing import Final

from lockstep.simulation.museum.variant import edited
from tests.mutants.protection import Protection

__all__ = ["UNREADABLE"]

# Modules
LINES: Final = "lockstep.cli.produce.lines"
CLIENT: Final = "lockstep.client.instance.client"
MESSAGE: Final = "lockstep.protocol.messages.message"
PROTOCOL_PULLED: Final = "lockstep.protocol.messages.pulled"

PULLED: Final = ("tests/client/dispatch/test_unreadable.py",)
LOOKED_UP: Final = ("tests/client/pulls/test_unpacking.py",)

UNREADABLE: Final = (
    Protection(
        "unreadable-handed-out",
        "A body that cannot be unpacked fails the whole pull, again and again.",
        edited(MESSAGE, "unpacked", "return message.unreadable(str(error))", "raise"),
        PULLED,
    ),
    Protection(
        "broken-record-asked-alone",
        "A pull whose first record is no message is made again for ever.",
        edited(PROTOCOL_PULLED, "take", "count > 1", "True"),
        PULLED,
    ),
    Protection(
        "bodies-of-a-pull-bounded",
        "All bodies of a pull are unpacked at once, however large they are.",
        edited(PROTOCOL_PULLED, "unpack", "size >= plain_bytes_max", "False"),
        PULLED,
    ),
    Protection(
        "unpacked-on-a-thread",
        "Bodies are unpacked on the event loop.",
        edited(CLIENT, "MQClientInstance._on_thread", "await self._unpacking.submit(work)", "work()"),
        LOOKED_UP,
    ),
    Protection(
        "unreadable-look-up-told",
        "A half message, or one of an administrator, that cannot be read goes to the listener without a word.",
        edited(CLIENT, "MQClientInstance.unpack_all", "self.log_unreadable(message)", ""),
        LOOKED_UP,
    ),
    Protection(
        "unreadable-envelope-refused",
        "`produce --envelope` sends the packed bytes of a body that could not be unpacked as a body.",
        edited(LINES, "_envelope_body", "error is not None", "False"),
        ("tests/cli/test_cli_lines.py::test_a_bad_envelope_is_named_with_what_is_wrong",),
    ),
)
