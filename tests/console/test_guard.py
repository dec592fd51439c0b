"""The turns and the bodies of requests, before any page is made."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.console import guard
from lockstep.console.connections import BODY_BYTES_MAX
from lockstep.console.guard import Guard

HOST = "127.0.0.1:8088"
LOOP_TURNS = 500  # far more than forty requests take to come as far as they can


async def call(app: ASGIApp, *messages: Message, method: str = "GET") -> int:
    """One request of our own page. Returns how many of its messages were read."""
    left = list(messages)
    headers = [(b"host", HOST.encode()), (b"origin", f"http://{HOST}".encode()), (b"content-length", b"1")]
    scope: Scope = {"type": "http", "method": method, "path": "/reset", "query_string": b"", "headers": headers}

    async def receive() -> Message:
        return left.pop(0)

    async def send(_: Message) -> None: ...

    await app(scope, receive, send)
    return len(messages) - len(left)


async def test_only_so_many_pages_are_made_at_once() -> None:
    """Others wait. A turn ends when its answer begins, though nobody reads the rest, and when a page fails."""
    begun, may_answer, never = 0, asyncio.Event(), asyncio.Event()

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        await may_answer.wait()
        if begun % 2:
            raise OSError
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await never.wait()

    app = Guard(page, "")
    requests = [asyncio.ensure_future(call(app)) for _ in range(3 * guard._UNDER_WAY_MAX)]
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    assert begun == guard._UNDER_WAY_MAX
    may_answer.set()
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    assert begun == 3 * guard._UNDER_WAY_MAX
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


async def test_a_body_is_read_up_to_its_limit() -> None:
    """Whatever length its header gave. The page gets what was read, and sees that there is more."""
    got: list[Message] = []

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        got.append(await receive())

    part = {"type": "http.request", "body": b"x" * BODY_BYTES_MAX, "more_body": True}
    assert await call(Guard(page, ""), *[part] * 9, method="POST") == 2
    assert (len(got[0]["body"]), got[0]["more_body"]) == (2 * BODY_BYTES_MAX, True)


async def test_a_peer_that_left_before_its_body_gets_no_page() -> None:
    """Nobody would read the answer, and a change that was cut off is not made."""

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    first = {"type": "http.request", "body": b"token", "more_body": True}
    assert await call(Guard(page, ""), first, {"type": "http.disconnect"}, method="POST") == 2
