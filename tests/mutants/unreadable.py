"""Protections against messages that cannot be read, and bodies that grow when they are unpacked."""

from typing import Final

from tests.mutants.protection import Protection

__all__ = ["UNREADABLE"]

PULLED: Final = ("tests/client/dispatch/test_unreadable.py",)
LOOKED_UP: Final = ("tests/client/pulls/test_unpacking.py",)

UNREADABLE: Final = (
    Protection(
        "unreadable-handed-out",
        "A body that cannot be unpacked fails the whole pull, again and again.",
        "protocol/messages/message.py",
        "            return self.unreadable(str(error))\n",
        "            raise\n",
        PULLED,
    ),
    Protection(
        "broken-record-asked-alone",
        "A pull whose first record is no message is made again for ever.",
        "protocol/messages/pulled.py",
        "    if count > 1:\n        return None\n",
        "    return None\n",
        PULLED,
    ),
    Protection(
        "bodies-of-a-pull-bounded",
        "All bodies of a pull are unpacked at once, however large they are.",
        "protocol/messages/pulled.py",
        "        if size >= plain_bytes_max:",
        "        if False:",
        PULLED,
    ),
    Protection(
        "unpacked-on-a-thread",
        "Bodies are unpacked on the event loop.",
        "client/instance/client.py",
        "        return await self._unpacking.submit(work)\n",
        "        return work()\n",
        LOOKED_UP,
    ),
    Protection(
        "unreadable-look-up-told",
        "A half message, or one of an administrator, that cannot be read goes to the listener without a word.",
        "client/instance/client.py",
        "                self.log_unreadable(message)\n",
        "                pass\n",
        LOOKED_UP,
    ),
    Protection(
        "unreadable-envelope-refused",
        "`produce --envelope` sends the packed bytes of a body that could not be unpacked as a body.",
        "cli/produce/lines.py",
        "    if error is not None:\n",
        "    if False:\n",
        ("tests/cli/test_cli_lines.py::test_a_bad_envelope_is_named_with_what_is_wrong",),
    ),
)
