"""A figure as files and as inline SVG: the same figure gives the same bytes."""

import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.figure import Figure

from glue_bench.files import write_atomically
from glue_bench.reporting.figures.style import DPI, LIGHT, laid_out, paper_style, variable

FORMATS = ("svg", "pdf", "png")
SVG = "http://www.w3.org/2000/svg"
NO_DATES: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
SHOWN, LEAST = 1.9, 1.4
"""CSS pixels for a point on a wide and on a narrow page: text of 7 points is 13 pixels there, and 10 at least."""
REFERRING = {"href", "clip-path"}
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"#([\w-]+)")
_COLOURS = {colour: variable(name) for name, colour in LIGHT.items()}


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the figure as `stem` with each format's suffix, into a folder that is made if needed; the paths written.

    Text stays text in SVG (small, searchable, editable) and is embedded as TrueType in PDF, as publishers want it. PNG
    has 300 dots per inch.
    """
    paths = []
    for format in formats:
        paths.append(stem.with_name(f"{stem.name}.{format}"))
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(paths[-1], drawn(figure, format))
    return paths


def drawn(figure: Figure, format: str) -> bytes:
    """The figure as the bytes of a file of that format, without dates and with ids that depend on nothing else."""
    with paper_style(), io.BytesIO() as file:
        figure.set_dpi(DPI)  # vector formats leave a figure at 72, at which the next PNG would be drawn
        canvas: Any = get_registered_canvas_class(format)(laid_out(figure))  # `savefig` would draw it twice
        getattr(canvas, f"print_{format}")(file, metadata=NO_DATES[format])
        return file.getvalue()


def svg_text(figure: Figure, title: str, description: str) -> str:
    """The figure as an `<svg>` for a page that has `style.page_css`: role, title and description for screen readers.

    It is as wide as its place, within LEAST and SHOWN pixels a point. Colours of `style.LIGHT` become CSS variables,
    the background is the page's, and text stays text in the page's own typeface: small, and found by a search. Ids are
    made of the figure and its title, so that two figures of a page have none in common unless both are the same.
    """
    root = ElementTree.fromstring(drawn(figure, "svg"))
    name = "f" + hashlib.sha256(title.encode() + ElementTree.tostring(root)).hexdigest()[:8]
    _undress(root)
    _rename(root, name)
    for element in root.iter():
        _shorten(element)
    about = [ElementTree.Element(kind, {"id": f"{name}-{kind}"}) for kind in ("title", "desc")]
    for element, text in zip(about, (title, description), strict=True):
        element.text = text
    root[:0] = about
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    root.attrib = {
        **{"xmlns": SVG, "role": "img", "aria-labelledby": " ".join(element.attrib["id"] for element in about)},
        **{"class": "figure", "viewBox": f"0 0 {width:g} {height:g}", "stroke-linejoin": "round"},
        "style": f"width:100%;min-width:{width * LEAST:.0f}px;max-width:{width * SHOWN:.0f}px",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _undress(root: ElementTree.Element) -> None:
    """Take away namespaces, metadata, white space between elements, the background and styles of the whole page."""
    for parent in list(root.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        parent.attrib = {key.rpartition("}")[2]: value for key, value in parent.attrib.items()}
        parent.tail = None
        if not (parent.text or "").strip():
            parent.text = None
        for child in [child for child in parent if child.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)
    background = next(element for element in root.iter("g") if element.get("id") == "patch_1")
    background.clear()


def _rename(root: ElementTree.Element, name: str) -> None:
    """Give the ids that something refers to a name of this figure, and drop the others."""
    used = [found for element in root.iter() for key in REFERRING for found in _REFERENCE.findall(element.get(key, ""))]
    names = {old: f"{name}-{number}" for number, old in enumerate(dict.fromkeys(used))}
    for element in root.iter():
        if new := names.get(element.attrib.pop("id", "")):
            element.set("id", new)
        for key in REFERRING & element.attrib.keys():
            element.set(key, _REFERENCE.sub(lambda match: f"#{names[match[1]]}", element.attrib[key]))


def _shorten(element: ElementTree.Element) -> None:
    """Numbers to a hundredth of a point, colours as variables, no typeface."""
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if element.tag == "image":
        element.set("href", "".join(element.attrib["href"].split()))
    for key in ("d", "x", "y", "width", "height", "transform"):
        if key in element.attrib:
            text = _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), element.attrib[key])
            element.set(key, " ".join(text.split()))
    parts = [part.strip() for part in element.get("style", "").split(";")]
    kept = [part.replace(": ", ":") for part in parts if part and not part.startswith("font-family")]
    if kept:
        pairs = (part.partition(":") for part in kept)
        element.set("style", ";".join(f"{key}:{_COLOURS.get(value, value)}" for key, _, value in pairs))
