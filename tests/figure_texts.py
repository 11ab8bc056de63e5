"""What a figure says, and that nothing of it is cut off."""

from matplotlib.text import Text

from glue_bench.tables.drawing import paper_style


def texts_of(figure):
    """Draw a figure without pixels; all texts in it, of which each must lie inside the figure."""
    with paper_style():
        figure.draw_without_rendering()
    axes = [axis for one in figure.axes for axis in (one.xaxis, one.yaxis)]
    beyond = [label for axis in axes for label in _beyond(axis)]
    found = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible() and text not in beyond]
    page = figure.bbox.padded(2)
    for text in found:
        box = text.get_window_extent()
        assert page.count_contains(box.corners()) == 4, f"'{text.get_text()}' is cut off: {box} of {page}"
    return [text.get_text() for text in found]


def _beyond(axis):
    """Labels of ticks that are not drawn: those outside the axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [tick.label1 for tick in ticks if not low <= tick.get_loc() <= high]
