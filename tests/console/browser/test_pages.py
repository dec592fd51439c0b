"""Every page in Chromium: no error in its console, names, contrast, widths, light and dark, keyboard, hostile texts."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import NEEDS_BROWSER
from tests.commands import TIMEOUT_S
from tests.console.browser.looks import faults
from tests.console.browser.site import GROUP, POPS, TIMEOUT_MS, TOPIC, Site

pytestmark = [NEEDS_BROWSER, pytest.mark.process, pytest.mark.long]

TAIL = "tail"
PATHS = (
    "/",
    "/groups",
    f"/group?group={GROUP}",
    f"/group?group={POPS}",
    "/group?group=nobody",
    "/topics",
    f"/topic?topic={TOPIC}",
    "/topic?topic=nowhere",
    "/messages",
    f"/messages?topic={TOPIC}",
    f"/messages?topic={TOPIC}&by=key&text=nothing",
    f"/message?topic={TOPIC}&broker=broker-a&queue=0&offset=0&view=hex",
    f"/message?topic={TOPIC}&broker=broker-a&queue=0&offset=9999",
    f"/messages?topic={TOPIC}&queue=broker-a:0&pause=1",
    f"/message/of-key?topic={TOPIC}&broker=broker-a&queue=0&offset=0&key=nobody&to=next",
    f"/key?topic={TOPIC}&key=k1",
    "/brokers",
    "/broker?broker=broker-a",
    "/doctor",
    f"/reset?group={GROUP}&topic={TOPIC}&to=earliest",
    "/topic/edit",
    f"/topic/edit?topic={TOPIC}&read=8&write=8&perm=rw&force=1",
    f"/topic/edit?topic={TOPIC}&read=0&write=8&perm=rw",
    f"/topic/delete?topic={TOPIC}",
    f"/topic/delete?topic={TAIL}",
    f"/group/edit?group={GROUP}&order=yes&retries=3",
    f"/group/delete?group={GROUP}",
    "/group/delete?group=TOOLS_CONSUMER",
    "/send",
    f"/send?topic={TOPIC}",
    "/nowhere",
)
WIDTHS = (1280, 800, 390)


def unexpected(errors: list[str]) -> list[str]:
    """A page that says "not found" has that status, which the browser tells too."""
    return [error for error in errors if not re.search(r"status of (400|404|502)", error)]


def ready(page: Page, site: Site) -> None:
    """Both members have their share, and the console has seen it."""
    page.goto(f"{site.address}/group?group={GROUP}")
    expect(page.locator("main")).to_contain_text("member-1", timeout=TIMEOUT_MS)
    expect(page.locator("main")).to_contain_text("AVG of 2 members", timeout=TIMEOUT_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_at_each_width(site: Site, page: Page, errors: list[str], scheme: str) -> None:
    """Nothing is without a name, too pale or too wide, and the browser has nothing to complain of."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    ready(page, site)
    found = []
    for path in PATHS:
        page.goto(site.address + path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            found += [f"{path} at {width}: {fault}" for fault in faults(page)]
    assert not found, "\n".join(found)
    assert not unexpected(errors)


def test_who_holds_what_is_shown(site: Site, page: Page, errors: list[str]) -> None:
    page.goto(f"{site.address}/group?group={POPS}")
    table = page.locator("#deliveries")
    expect(table).to_contain_text(f"{TOPIC} broker-a:", timeout=TIMEOUT_MS)
    expect(table).to_contain_text("until ")
    assert not unexpected(errors)


def test_the_checks_bite(page: Page) -> None:
    """Each kind of fault is seen on a page that has them all."""
    page.set_content(
        "<html lang=''><h1>a</h1><h1>b</h1><button></button><input id=x><i id=x></i><table><tr><td>1</td></tr>"
        "<tr><td>2</td></tr></table><p style='color:#999;background:#fff'>pale</p><p style='width:4000px'>wide</p>"
        "<div style='opacity:0.5;background:#fff'><b style='color:#000'>faded</b></div>"
        "<i style='color:#00000080;background:#fff'>thin</i>"
        "<input placeholder=hint aria-label=x style='background:#222'>"
    )
    kinds = ("no name: <button", "no name: <input", "no caption", "no header", "id twice", "not one h1", "no language",
             "no title", "wider than", "contrast 2.85", "contrast 3.98: <b", "contrast 3.98: <i",
             "contrast of placeholder")  # fmt: skip
    found = "\n".join(faults(page))
    assert [kind for kind in kinds if kind not in found] == []


def test_chinese_pages(site: Site, page: Page, errors: list[str]) -> None:
    """The reader's choice holds for every page, and no text is missing in it."""
    page.goto(f"{site.address}/groups")
    page.get_by_role("link", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    for path in PATHS:
        page.goto(site.address + path)
        expect(page.locator("html")).to_have_attribute("lang", "zh")
        assert not faults(page)
    assert not unexpected(errors)


# Texts of charts that are too small, overlap each other, or stand outside of the window.
SQUEEZED = """() => {
  const found = [];
  for (const chart of document.querySelectorAll(".plot")) {
    const texts = [...chart.querySelectorAll("text")].filter((one) => one.getClientRects().length);
    const boxes = texts.map((one) => one.getBoundingClientRect());
    boxes.forEach((box, i) => {
      const name = texts[i].textContent;
      if (parseFloat(getComputedStyle(texts[i]).fontSize) < 11) found.push("small: " + name);
      if (box.left < 0 || box.right > innerWidth) found.push("outside: " + name);
      for (const other of boxes.slice(i + 1))
        if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)
          found.push("overlaps: " + name);
    });
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_fit_each_width(site: Site, page: Page, errors: list[str], scheme: str) -> None:
    """Of a group, its topic and a broker: the lines come by themselves, and no text is squeezed."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in (f"/group?group={GROUP}", f"/topic?topic={TOPIC}", "/brokers"):
        for minutes in (1, 60):
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(f"{site.address}{path}{'&' if '?' in path else '?'}minutes={minutes}")
            for kind in ("in", "lag"):
                line = page.locator(f".plot path.line.{kind}").first
                expect(line).to_have_attribute("d", re.compile(r"M\S+ \S+L"), timeout=TIMEOUT_MS)
            for details in page.locator("details#queue-lags").all():
                details.locator("summary").click()
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(SQUEEZED) + faults(page) == [], (path, minutes, width)
    assert not unexpected(errors)


def test_a_range_is_kept(browser: Browser, site: Site, page: Page) -> None:
    """A link chooses it, without a script too; a live page keeps it, and a form does."""
    ready(page, site)  # without a script a page of a group that was not read yet stays as it is
    page.goto(f"{site.address}/?group={GROUP}")
    page.get_by_role("link", name="1 min", exact=True).click()
    chosen = page.get_by_role("navigation", name="Shown time").locator("[aria-current]")
    shown = page.get_by_role("navigation", name="Shown time").locator("span").inner_text()
    expect(page.get_by_role("navigation", name="Shown time").locator("span")).not_to_have_text(shown)
    expect(chosen).to_have_text("1 min")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page).to_have_url(re.compile("minutes=1$"))
    context = browser.new_context(locale="en-US", java_script_enabled=False)
    context.set_default_timeout(TIMEOUT_MS)
    plain = context.new_page()
    plain.goto(f"{site.address}/group?group={GROUP}")
    plain.get_by_role("link", name="60 min", exact=True).click()
    expect(plain.locator(".views [aria-current]")).to_have_text("60 min")
    context.close()


def test_a_click_may_take_its_time(site: Site, page: Page) -> None:
    """What stands under a pressed button of the mouse stays until it is released, however often the page is new."""

    def wait_for_new_part() -> None:
        with page.expect_response(lambda answer: "x-live" in answer.request.headers):
            pass

    page.goto(f"{site.address}/?group={GROUP}")
    page.get_by_role("link", name="1 min", exact=True).hover()
    page.mouse.down()
    for _ in range(3):  # one was perhaps on its way, and the next one is asked for when the last one is done
        wait_for_new_part()
    page.mouse.up()
    expect(page).to_have_url(re.compile("minutes=1$"))


def test_by_keyboard_alone(site: Site, page: Page) -> None:
    """The first Tab offers the content; from the navigation Enter opens a page; the focus can be seen."""
    page.goto(f"{site.address}/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_role("link", name="Groups", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.address}/groups")


def test_a_body_with_markup_is_text(site: Site, page: Page, errors: list[str]) -> None:
    """In the list, in each view of the message, and on the way of its key: no script of it runs."""
    page.goto(f"{site.address}/messages?topic={TOPIC}")
    row = page.get_by_role("row").filter(has_text="window.evil")
    expect(row).to_contain_text("<script>")
    row.get_by_role("rowheader").get_by_role("link").click()
    for view in ("Text", "JSON", "Hex"):
        page.get_by_role("link", name=view, exact=True).click()
        expect(page.locator("pre")).to_be_visible()
        assert page.evaluate("window.evil") is None
    page.get_by_role("link", name="The way of key evil").click()
    expect(page.locator("main")).to_contain_text("All messages of this key that were found are in queue")
    assert page.evaluate("window.evil") is None
    assert not unexpected(errors)


def test_a_tail_comes_and_pauses(site: Site, page: Page, errors: list[str]) -> None:
    """New messages come by themselves; by keyboard the list stands still, without a stream, and goes on."""
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if request.url.endswith("/events") else None)
    page.on("requestfailed", lambda request: streams.remove(request.url) if request.url in streams else None)

    def send(number: int) -> None:
        site.lockstep("produce", TAIL, "--key", "k", stdin=f'{{"number": {number}}}\n')

    send(1)
    page.goto(f"{site.address}/messages?topic={TAIL}")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    send(2)
    expect(rows).to_have_count(2)
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        page.locator("#pause").press("Enter")
    expect(page.locator("#pause")).to_have_text("Go on: the list stands still")
    assert not streams
    send(3)
    expect(rows).to_have_count(2)
    page.locator("#pause").press("Enter")
    expect(rows).to_have_count(3)
    rows.last.get_by_role("rowheader").get_by_role("link").press("Enter")
    for link, number in (("#next", 2), ("#next-of-key", 3), ("#previous-of-key", 2), ("#previous", 1)):
        page.locator(link).press("Enter")
        expect(page.locator("pre")).to_contain_text(f'"number": {number}')
    assert not unexpected(errors)


def test_messages_by_time_and_id(site: Site, page: Page) -> None:
    """All that were stored since the epoch; then one of them by its id."""
    page.goto(f"{site.address}/messages?topic={TOPIC}&by=time&text=1970-01-01")
    expect(page.locator("caption")).to_contain_text("41 messages from then on")
    page.get_by_role("rowheader").first.get_by_role("link").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Message id", exact=True))
    found = row.get_by_role("cell").inner_text()
    page.goto(f"{site.address}/messages?topic={TOPIC}&by=id&text={found}")
    expect(page.locator("caption")).to_contain_text("1 messages of this id")


def test_the_doctor_looks_and_shows(site: Site, page: Page) -> None:
    """The page shows what was found without a reload; a second look can be asked for."""
    ready(page, site)
    page.goto(f"{site.address}/doctor?group={GROUP}")
    expect(page.locator("main")).to_contain_text("rules looked at 1 groups", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_role("button", name="Look again")).to_be_enabled(timeout=TIMEOUT_MS)


def test_a_reset_asks_first(site: Site, page: Page) -> None:
    """The preview changes nothing; the form moves the members, and says so."""
    ready(page, site)
    page.get_by_role("link", name=f"Reset the offsets of {TOPIC}").click()
    page.get_by_role("button", name="Show what would change").click()
    expect(page).to_have_url(re.compile("to=earliest"))
    change = page.get_by_role("button", name="Reset 4 offsets of shop")
    deadline_s = time.monotonic() + TIMEOUT_S
    while not change.count():  # members commit what they have handled every few seconds
        assert time.monotonic() < deadline_s, page.locator("main").inner_text()
        page.reload()
    expect(page.locator("main")).to_contain_text("Nothing is changed yet.")
    change.click()
    expect(page.get_by_role("status")).to_contain_text("Done on broker-a. The brokers told the members")


def test_a_topic_is_made_and_deleted_by_keyboard(site: Site, page: Page, errors: list[str]) -> None:
    """From the list to the form, its preview, and its button; then away again by its name."""
    page.goto(f"{site.address}/topics")
    page.get_by_role("link", name="Create a topic").press("Enter")
    page.locator("#topic").press_sequentially("by-hand")
    page.locator("#topic").press("Enter")
    page.get_by_role("button", name="Change by-hand").press("Enter")
    expect(page.get_by_role("status")).to_have_text("Done: broker-a.")
    page.get_by_role("link", name="To by-hand").press("Enter")
    page.get_by_role("link", name="Delete").press("Enter")
    page.locator("#name").press_sequentially("by-hand")
    page.locator("#name").press("Enter")
    expect(page.get_by_role("status")).to_have_text("Done: by-hand.")
    assert not faults(page)
    assert not unexpected(errors)


def test_a_message_is_sent_by_keyboard(site: Site, page: Page, errors: list[str]) -> None:
    """From the topic to the form, and from its answer to the stored message."""
    page.goto(f"{site.address}/topic?topic={TOPIC}")
    page.get_by_role("link", name="Send a message").press("Enter")
    page.locator("#body").press_sequentially('{"sent": "by hand"}')
    page.locator("#key").press_sequentially("hand")
    page.locator("#key").press("Enter")
    page.locator("#stored").press("Enter")
    expect(page.locator("pre")).to_contain_text('"sent": "by hand"')
    expect(page.locator("main")).to_contain_text("The way of key hand")
    assert not unexpected(errors)


def test_a_lock_is_released_after_a_question(site: Site, page: Page) -> None:
    """The epoch that was asked for ends, and the lock has another one afterwards, or no owner yet."""
    ready(page, site)
    page.get_by_role("link", name="Release …").first.click()
    expect(page.locator("main")).to_contain_text("has held this lock for")
    page.get_by_role("button", name="Release the lock").click()
    expect(page.get_by_role("status")).to_contain_text("The lock is released.")


def test_a_form_of_another_site(site: Site, page: Page) -> None:
    """A page of another origin posts to the console: it is refused, whatever the form says."""
    page.set_content(f'<form method="post" action="{site.address}/reset"><button>go</button></form>')
    page.get_by_role("button").click()
    expect(page.locator("body")).to_contain_text("A form must come from a page of this console.")


def test_long_names_fit_a_phone(site: Site, page: Page) -> None:
    """A choice of groups or topics is as wide as the window at most, however long their names are."""
    long = "the-topic-and-the-group-of-the-payments-department-of-the-northern-region"
    site.lockstep("produce", long, "--key", "1", stdin='{"paid": 1}\n')
    reader = site.running.enter_context(site.lockstep.start("consume", long, "-g", long, "--from", "first"))
    reader.line()
    page.set_viewport_size({"width": 390, "height": 900})
    for path in ("/", "/doctor", f"/key?topic={long}&key=1"):
        page.goto(site.address + path)
        choice = page.locator("select option", has_text=long).first
        expect(choice).to_be_attached(timeout=TIMEOUT_MS)
        assert not faults(page), path
