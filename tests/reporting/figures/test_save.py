"""Figures as files and as inline SVG: the same bytes each time, and several of them on one page."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from glue_bench.reporting.figures.save import FORMATS, drawn, save, svg_text
from glue_bench.reporting.figures.style import CYCLE, INK, new_figure, paper_style

ROOT = Path(__file__).parents[3]


@paper_style()
def example(slope=1.0):
    figure = new_figure()
    axes = figure.add_subplot(title="Loss of one", xlabel="steps < 10", ylabel="loss")
    axes.plot([1, 2, 3], [slope, 0.0001, slope], color=CYCLE[0], marker="o")
    axes.imshow(np.arange(4.0).reshape(2, 2), aspect="auto")
    return figure


@pytest.fixture
def figure():
    return example()


def digests():
    figures = [drawn(example(), format) for format in FORMATS] + [svg_text(example(), "a", "b").encode()]
    return [hashlib.sha256(content).hexdigest() for content in figures]


def test_the_same_figure_has_the_same_bytes_in_every_process(tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_save; print(*test_save.digests(), 'matplotlib.pyplot' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "MPLCONFIGDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, text=True, capture_output=True, cwd=ROOT)
    assert done.stdout.split() == [*digests(), "False"]


def test_other_numbers_give_other_bytes():
    assert drawn(example(), "svg") != drawn(example(2), "svg")


def test_save_writes_every_format_and_makes_the_folder(figure, tmp_path):
    paths = save(figure, tmp_path / "new" / "loss.first")
    assert [path.name for path in paths] == ["loss.first.svg", "loss.first.pdf", "loss.first.png"]
    assert [path.read_bytes()[:4] for path in paths] == [b"<?xm", b"%PDF", b"\x89PNG"]
    assert b"Date" not in paths[0].read_bytes()
    assert b"<text" in paths[0].read_bytes()
    assert b"CreationDate" not in paths[1].read_bytes()
    assert b"/Type3" not in paths[1].read_bytes()
    width = int.from_bytes(paths[2].read_bytes()[16:20], "big")
    assert width == 300 * figure.get_figwidth()


def test_inline_svg_is_told_to_screen_readers(figure):
    root = ElementTree.fromstring(svg_text(figure, "Loss & <time>", "It falls."))
    title, about = root[:2]
    assert (title.text, about.text, root.get("role")) == ("Loss & <time>", "It falls.", "img")
    assert root.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
    said = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {"Loss of one", "steps < 10", "loss"} <= set(said)


def test_ids_of_two_figures_of_a_page_differ():
    both = [svg_text(example(), "one", ""), svg_text(example(), "two", ""), svg_text(example(2), "one", "")]
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in both]
    assert all(len(found) > 3 for found in ids)
    assert len(set.union(*ids)) == sum(map(len, ids))


def test_every_reference_of_an_inline_svg_is_there(figure):
    text = svg_text(figure, "one", "")
    referred = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text))
    assert len(referred) > 2
    assert {either or other for either, other in referred} <= set(re.findall(r' id="([^"]+)"', text))


def test_an_inline_svg_touches_nothing_else_of_its_page(figure):
    text = svg_text(figure, "one", "")
    assert not [word for word in ("<style", "metadata", "font-family", "xlink") if word in text]
    assert f"stroke:var(--fig-1,{CYCLE[0]})" in text
    assert f"fill:var(--fig-ink,{INK})" in text
    assert "\n" not in text


def test_tick_labels_keep_their_digits():
    figure = new_figure()
    axes = figure.add_subplot()
    axes.set(ylim=(0, 1), yticks=[0.0001, 0.12345], yticklabels=["0.0001", "0.12345"])
    assert ">0.12345</text>" in svg_text(figure, "one", "")


def test_the_settings_of_the_user_change_nothing():
    before = drawn(example(), "svg")
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.hashsalt": "x", "font.size": 30}):
        assert drawn(example(), "svg") == before
