"""Takes docs/play.png and docs/play.gif of a real run: `python -m tests.simulation.play.browser.pictures FOLDER`.

A member is killed by hand, on both sides. Under the faithful lock its queues wait until the lock ends.
"""

import io
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.browser import BROWSER, needed_arguments
from tests.commands import SCRIPTS, Running
from tests.simulation.play.browser.driven import ADDRESS, go_to, touch

STORY = ("--consumers", "2", "--queues", "4", "--rate", "2", "--work", "300ms", "--lock-mode", "both")
SIZE = ViewportSize(width=1200, height=552)
KILLED_MS, SHOWN_MS = 30_000, 50_000
BEFORE = range(26_000, KILLED_MS, 1000)
AFTER = range(KILLED_MS + 1000, 96_000, 2000)
FRAME_MS, LAST_MS = 220, 2500
COLOURS = 128
GIF_WIDTH = 1000


def picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot()))


def frames(page: Page, folder: Path) -> list[Image.Image]:
    """The run as it goes on; the moment that says most is a picture of its own."""
    taken = []
    for ms in BEFORE:
        go_to(page, ms)
        taken.append(picture(page))
    go_to(page, KILLED_MS)
    touch(page, "host", "c1", "Kill the process")
    page.mouse.move(0, 0)
    for ms in AFTER:
        go_to(page, ms)
        taken.append(picture(page))
        if ms > SHOWN_MS and not (folder / "play.png").exists():
            taken[-1].quantize(256).save(folder / "play.png", optimize=True)
    return taken


def save(taken: list[Image.Image], path: Path) -> None:
    """All frames have the colours of one of them, so that what stays the same is not written again."""
    height = GIF_WIDTH * taken[0].height // taken[0].width
    small = [one.convert("RGB").resize((GIF_WIDTH, height)) for one in taken]
    colours = small[len(small) // 2].quantize(COLOURS)
    first, *others = (one.quantize(palette=colours, dither=Image.Dither.NONE) for one in small)
    times_ms = [FRAME_MS] * len(others) + [LAST_MS]
    first.save(path, save_all=True, append_images=others, duration=times_ms, loop=0, optimize=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "play.png").unlink(missing_ok=True)
    command = [str(SCRIPTS / "lockstep-sim"), "play", "--no-open", "--port", "0", *STORY]
    with Running(command, os.environ, starter=subprocess.Popen) as started, sync_playwright() as playwright:
        found = ADDRESS.search(started.error_line())
        assert found
        browser = playwright.chromium.launch(executable_path=BROWSER, args=list(needed_arguments()))
        page = browser.new_page(viewport=SIZE, locale="en-US")
        page.goto(found[1])
        page.locator(".side").nth(1).wait_for()
        save(frames(page, folder), folder / "play.gif")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
