"""Heat maps show every label and weight, are well-formed for any text, and refuse weights that do not fit."""

from xml.etree import ElementTree

import numpy as np
import pytest

from qkv.base.errors import DataError
from qkv.lens.heatmap import attention_png, attention_svg

SVG = "{http://www.w3.org/2000/svg}"


def weights(rows: int, columns: int) -> np.ndarray:
    values = np.random.default_rng(1).random((rows, columns)) ** 4
    return values / values.sum(1, keepdims=True)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def cells(picture: str) -> list[ElementTree.Element]:
    """The squares of the heat map, which have a tooltip; those of the scale have none."""
    found = ElementTree.fromstring(picture).iter(f"{SVG}rect")
    return [cell for cell in found if cell.find(f"{SVG}title") is not None]


def test_labels_title_and_numbers():
    picture = attention_svg(np.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]]), ["K", "AE1"], list("cat"), "cat → K AE1")
    assert {"K", "AE1", "c", "a", "t", "cat → K AE1", "0", "0.75"} == set(texts(picture))
    tips = {cell.findtext(f"{SVG}title"): float(cell.attrib["fill-opacity"]) for cell in cells(picture)}
    assert tips == {"K ← c: 0.750": 1.0, "K ← a: 0.250": 0.333, "AE1 ← a: 0.500": 0.667, "AE1 ← t: 0.500": 0.667}


def test_user_text_is_escaped():
    picture = attention_svg(np.ones((1, 1)), ["</text><script>"], ['"><script>alert(1)</script>'], "<b>&\x00")
    assert "<script" not in picture
    assert "</text><script>" in texts(picture)


def test_whitespace_and_long_labels_can_be_read():
    picture = attention_svg(np.ones((1, 2)), ["x" * 40], [" ", "\n"], "t")
    assert texts(picture).count("␣") == 2
    assert "x" * 17 + "…" in texts(picture)
    assert "x" * 40 in picture  # in the tooltip


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 3), (60, 60), (3, 60), (60, 3)])
@pytest.mark.parametrize("label", ["a", "验证", "tokenisation"])
def test_everything_lies_inside_the_picture(rows, columns, label):
    picture = attention_svg(weights(rows, columns), [label] * rows, [label] * columns, "A title " * 12)
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for cell in root.iter(f"{SVG}rect"):
        assert 0 <= float(cell.attrib["x"]) <= width - float(cell.attrib["width"])
        assert 0 <= float(cell.attrib["y"]) <= height - float(cell.attrib["height"])
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width and 0 <= float(text.attrib["y"]) <= height
    assert width < 1400 and height < 1400
    assert len(picture) < 1_000_000


def test_wide_column_labels_slant_and_narrow_ones_stand():
    assert "rotate" not in attention_svg(np.ones((1, 2)), ["r"], ["a", "b"], "t")
    assert "rotate" in attention_svg(np.ones((1, 2)), ["r"], ["alpha", "beta"], "t")


def test_weights_that_are_nothing():
    assert cells(attention_svg(np.full((1, 2), np.nan), ["r"], ["a", "b"], "t")) == cells(
        attention_svg(np.zeros((1, 2)), ["r"], ["a", "b"], "t")
    )


@pytest.mark.parametrize("shape", [(2, 3), (0, 0), (3,)])
def test_weights_that_do_not_fit(shape):
    with pytest.raises(DataError, match="do not fit"):
        attention_svg(np.ones(shape), ["a"] * shape[0], ["b"] * 2, "t")


@pytest.mark.parametrize("columns", [list("cat"), ["wide", "labels", "here"], ["验", "证", "\U000e0fff"]])
def test_figure_is_a_png(tmp_path, columns):
    attention_png(weights(2, 3), ["K", "AE1"], columns, "cat", tmp_path / "new" / "cat.png")
    assert (tmp_path / "new" / "cat.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cat.png"]


def test_a_title_longer_than_the_picture_makes_it_wider(tmp_path):
    from matplotlib.image import imread

    title = "layer 1, head 1, from target to source"
    attention_png(weights(2, 2), list("ab"), list("cd"), title, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")[..., :3]
    assert (pixels[:40, -4:] == 1).all() and (pixels[:40] < 0.5).any()


def test_labels_are_not_formulas(tmp_path):
    attention_png(weights(1, 2), ["$5"], [r"$\bad$", "$"], r"$\worse$", tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()
