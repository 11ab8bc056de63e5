"""A report as a person meets it: opened in Chromium, in all widths, light and dark, by mouse and by keyboard."""

import pytest
from browser import Browser, Tab, chromium
from read_pages import contrast
from stored import LONG, Bench, fill

from glue_bench.tables.export import find
from glue_bench.tables.report import make_report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium here: `apt-get install chromium`"),
]
WIDTHS = (400, 1000, 1400)
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
CUT_OFF = """
(() => {
  const scrolls = (element) => element.closest(".scroll, pre");
  const said = (element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (element.closest(".unseen") || box.width === 0) continue;
    if (!scrolls(element) && (box.right > innerWidth + 1 || box.left < -1)) found.push(`outside: ${said(element)}`);
    const hides = ["hidden", "clip"].includes(style.overflowX);
    if (hides && element.scrollWidth > element.clientWidth) found.push(`hidden: ${said(element)}`);
    if (element.tagName === "IMG" && !element.naturalWidth) found.push(`no image: ${element.alt}`);
  }
  return found;
})()
"""
FIRST_TABLE = """
[...document.querySelector("table").tBodies[0].rows].map((row) => [row.cells[0].textContent, row.cells[2].textContent])
"""
HEADING = "table thead th:nth-child(3)"


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = fill(Bench(tmp_path_factory.mktemp("page") / "toy"), source="tsv")
    (folder / "report.html").write_text(make_report(find(folder)).to_html(), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture
def open_tab(browser, page):
    tabs = []

    def opened(width=1000, path=page, **how):
        tabs.append(Tab(browser, path, width, **how))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off_and_nothing_is_complained_of(open_tab, page, width):
    tab = open_tab(width)
    tab.value(UNFOLD)
    assert tab.value(CUT_OFF) == []
    assert tab.trouble() == []
    assert tab.fetched() == [page.as_uri()]
    assert tab.value("document.body.textContent").count(LONG) > 2


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(open_tab, dark):
    """At 4.5 to 1 (WCAG 2.1, 1.4.3), in each colour that the page has for text."""
    tab = open_tab(dark=dark)
    colour = "getComputedStyle(document.documentElement).getPropertyValue('--{}').trim()"
    page, *inks = (tab.value(colour.format(name)) for name in ("page", "text", "quiet", "warn", "link"))
    assert min(contrast(page, ink) for ink in inks) >= 4.5
    shade = tab.value("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(22, 22, 22)" if dark else "rgb(255, 255, 255)")


def test_click_and_keyboard_sort_the_largest_first_then_the_smallest_then_as_it_was(open_tab):
    tab = open_tab()
    before = tab.value(FIRST_TABLE)
    for order, largest_first in (("descending", True), ("ascending", False)):
        tab.click(f"{HEADING} button")
        assert tab.value(f"document.querySelector('{HEADING}').ariaSort") == order
        rows = tab.value(FIRST_TABLE)
        numbers = [float(number.strip("▲▼")) for _, number in rows]
        assert numbers == sorted(numbers, reverse=largest_first)
        assert sorted(rows) == sorted(before)
    assert [arm for arm, _ in rows] == ["none", "add", LONG]
    tab.click(f"{HEADING} button")
    assert tab.value(FIRST_TABLE) == before
    assert tab.value("document.querySelectorAll('[aria-sort]').length") == 0
    tab.value("document.querySelector('thead button').focus()")
    tab.press_enter()
    assert [arm for arm, _ in tab.value(FIRST_TABLE)] == sorted([LONG, "add", "none"])
    assert tab.trouble() == []


def test_what_has_no_number_stays_below_and_units_count(open_tab, tmp_path, page):
    ranked = ["1.45M", "930k", "2,000", "10.91▲", "< 0.0001", "5e-05", "-0.50", "-3.00 to 1.00", "–"]  # noqa: RUF001
    rows = "".join(f"<tr><th>{text}</th><td></td><td class='number'>{text}</td></tr>" for text in sorted(ranked))
    head = "<tr><th>a</th><th>b</th><th class='number'>c</th></tr>"
    body = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    script = page.read_text(encoding="utf-8").partition("<script>")[2].partition("</script>")[0]
    path = tmp_path / "table.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'>{body}<script>{script}</script>", encoding="utf-8")
    tab = open_tab(path=path)
    for order in (ranked, [*ranked[-2::-1], ranked[-1]]):
        tab.click(f"{HEADING} button")
        assert [text for text, _ in tab.value(FIRST_TABLE)] == order


def test_it_is_readable_without_scripts(open_tab):
    tab = open_tab(scripts=False)
    assert tab.value("document.querySelectorAll('button').length") == 0
    assert [arm for arm, _ in tab.value(FIRST_TABLE)] == [LONG, "add", "none"]
    assert tab.value("document.querySelector('img').getBoundingClientRect().width") > 300
    tab.click("summary")
    assert tab.value("document.querySelector('details').open")
    assert tab.trouble() == []
