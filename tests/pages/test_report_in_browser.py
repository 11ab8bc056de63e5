"""A report as a person meets it: in Chromium, at all widths, light and dark, by click and key."""

import json
import select
import shutil
import subprocess
import tempfile

import pytest
from helpers.read_pages import contrast
from helpers.stored import LONG, Bench, fill

from glue_bench.board.compare import open_comparison
from glue_bench.pages.render import to_html
from glue_bench.pages.report import make_report

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: `apt-get install chromium`"),
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
PATIENCE = 120
"""The seconds after which a silent browser is given up."""
TROUBLE = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
CUT_OFF = """
(() => {
  const said = (element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (element.closest(".unseen") || box.width === 0) continue;
    const scrolls = element.closest(".scroll, pre");
    const isOutside = box.right > innerWidth + 1 || box.left < -1;
    if (!scrolls && isOutside) found.push(`outside: ${said(element)}`);
    const hides = ["hidden", "clip"].includes(style.overflowX);
    if (hides && element.scrollWidth > element.clientWidth) found.push(`hidden: ${said(element)}`);
    if (element.tagName === "IMG" && !element.naturalWidth) found.push(`no image: ${element.alt}`);
  }
  return found;
})()
"""
FIRST_TABLE = """
[...document.querySelector("table").tBodies[0].rows].map(
  (row) => [row.cells[0].textContent, row.cells[2].textContent]
)
"""
HEADING = "table thead th:nth-child(3)"


class Browser:
    """Chromium with one page and no window.

    https://chromedevtools.github.io/devtools-protocol/ describes its calls.
    """

    def __init__(self, folder):
        # The protocol is spoken on the descriptors 3 and 4 of the browser.
        command = [
            "bash",
            "-c",
            'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1',
            "bash",
            CHROMIUM,
            *FLAGS,
        ]
        command.append(f"--user-data-dir={folder}")

        self.process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

        self.unread = b""
        self.number = 0
        self.events = []
        self.session = {}

        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Return the result of a call; events that come before it are kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **self.session}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def next(self):
        """Return the next message."""
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            block = self.process.stdout.read(2**20) if ready else b""
            assert block, "the browser has ended, or says nothing"
            self.unread += block
        text, _, self.unread = self.unread.partition(b"\0")
        return json.loads(text)

    def open(self, path, width=1000, *, dark=False, scripts=True):
        """Open a page at a width in CSS pixels, and return the browser."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())
        return self

    def value(self, expression):
        """Return the value of a JavaScript expression, even if the page's scripts are off."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def trouble(self):
        """Return the errors of the browser since the page was opened."""
        self.value("1")  # the browser reports all earlier events before it answers this
        return [event["params"] for event in self.events if event.get("method") in TROUBLE]


def arms_in_order(browser):
    """Return the arms of the first table from top to bottom."""
    return [arm for arm, _ in browser.value(FIRST_TABLE)]


@pytest.fixture(scope="module")
def browser():
    with tempfile.TemporaryDirectory(prefix="browser-") as folder:
        chromium = Browser(folder)
        yield chromium
        chromium.session = {}
        chromium.call("Browser.close")
        with chromium.process:
            chromium.process.wait(timeout=60)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = fill(Bench(tmp_path_factory.mktemp("page") / "toy"), source="tsv")
    (folder / "report.html").write_text(
        to_html(make_report(open_comparison(folder))), encoding="utf-8"
    )
    return folder / "report.html"


@pytest.mark.parametrize("width", [400, 1000, 1400])
def test_nothing_is_cut_off_fetched_or_complained_of(browser, page, width):
    browser.open(page, width).value(UNFOLD)
    assert browser.value(CUT_OFF) == []
    assert browser.trouble() == []
    addresses = []
    for event in browser.events:
        if event.get("method") == "Network.requestWillBeSent":
            addresses.append(event["params"]["request"]["url"])
    expected = [page.as_uri()]
    assert [url for url in addresses if not url.startswith("data:")] == expected
    assert browser.value("document.body.textContent").count(LONG) > 2


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast_to_its_background(browser, page, dark):
    """The contrast is at least 4.5 to 1 (WCAG 2.1, 1.4.3) for each colour of text on the page."""
    browser.open(page, dark=dark)
    colour = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    ground, *inks = (
        browser.value(colour.format(name)) for name in ("page", "text", "quiet", "warn", "link")
    )
    assert min(contrast(ground, ink) for ink in inks) >= 4.5
    shade = browser.value("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(22, 22, 22)" if dark else "rgb(255, 255, 255)")


def test_click_and_keyboard_sort_the_largest_first_then_the_smallest_then_as_it_was(browser, page):
    before = browser.open(page).value(FIRST_TABLE)
    for order, largest_first in (("descending", True), ("ascending", False)):
        browser.click(f"{HEADING} button")
        assert browser.value(f"document.querySelector('{HEADING}').ariaSort") == order
        rows = browser.value(FIRST_TABLE)
        numbers = [float(number.strip("▲▼")) for _, number in rows]
        assert numbers == sorted(numbers, reverse=largest_first)
        assert sorted(rows) == sorted(before)
    assert [arm for arm, _ in rows] == ["none", "add", LONG]
    browser.click(f"{HEADING} button")
    assert browser.value(FIRST_TABLE) == before
    assert browser.value("document.querySelectorAll('[aria-sort]').length") == 0
    browser.value("document.querySelector('thead button').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key="Enter", windowsVirtualKeyCode=13, text="\r"
        )
    assert arms_in_order(browser) == sorted([LONG, "add", "none"])
    assert browser.trouble() == []


def test_what_has_no_number_stays_below_and_units_count(browser, tmp_path, page):
    ranked = [
        "1.45M",
        "930k",
        "2,000",
        "10.91▲",
        "< 0.0001",
        "5e-05",
        "-0.50",
        "-3.00 to 1.00",
        "–",  # noqa: RUF001
    ]

    rows = "".join(
        f"<tr><th>{text}</th><td></td><td class='number'>{text}</td></tr>"
        for text in sorted(ranked)
    )
    head = "<tr><th>a</th><th>b</th><th class='number'>c</th></tr>"
    body = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    script = page.read_text(encoding="utf-8").partition("<script>")[2].partition("</script>")[0]
    path = tmp_path / "table.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'>{body}<script>{script}</script>", encoding="utf-8"
    )

    browser.open(path)
    for order in (ranked, [*ranked[-2::-1], ranked[-1]]):
        browser.click(f"{HEADING} button")
        assert arms_in_order(browser) == order


def test_it_is_readable_without_scripts(browser, page):
    browser.open(page, scripts=False)
    assert browser.value("document.querySelectorAll('button').length") == 0
    assert arms_in_order(browser) == [LONG, "add", "none"]
    assert browser.value("document.querySelector('img').getBoundingClientRect().width") > 300
    browser.click("summary")
    assert browser.value("document.querySelector('details').open")
    assert browser.trouble() == []
