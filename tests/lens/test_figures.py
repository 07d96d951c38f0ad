"""Every view is drawn as a PNG, and a missing view, part, layer or head is refused with the known ones."""

from pathlib import Path

import pytest

from inspected_models import TEXT, generator, reader, translator
from qkv.base.errors import ConfigError, DataError
from qkv.lens.figures import VIEWS, draw_view, select_maps
from qkv.lens.view import AttentionView, look

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def seen() -> AttentionView:
    return look(translator("transformer"), TEXT, "Le $\\café$ $5 设置")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_picture(seen: AttentionView, view: str, tmp_path: Path) -> None:
    draw_view(seen, tmp_path / "new" / "picture.png", view)
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(PNG)
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_the_default_view(seen: AttentionView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, str]] = []
    monkeypatch.setattr("qkv.lens.figures._draw_alignment", lambda view, path: drawn.append(("alignment", view.model)))
    monkeypatch.setattr("qkv.lens.figures.attention_png", lambda w, rows, columns, title, path: drawn.append((title, "")))
    draw_view(seen, tmp_path / "a.png")
    draw_view(seen, tmp_path / "b.png", layer=3, head=2)
    draw_view(seen, tmp_path / "c.png", part="encoder", layer=2, head=1)
    assert drawn == [
        ("alignment", "transformer"),
        ("layer 3, head 2, from target to source", ""),
        ("layer 2, head 1, reading", ""),
    ]


def test_the_head_that_is_named_is_drawn(seen: AttentionView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr("qkv.lens.figures.attention_png", lambda *arguments: given.append(arguments))
    draw_view(seen, tmp_path / "a.png", part="decoder", layer=2, head=2)
    weights, rows, columns, *_ = given[0]
    assert (weights == seen.maps[4].weights[1].numpy()).all() and seen.maps[4].name == "decoder.1.self"
    assert rows == columns and rows[0] == "<s>"


def test_encoders_and_gpts_show_all_heads(tmp_path: Path) -> None:
    for number, loaded in enumerate((reader("bert", tmp_path), generator(tmp_path))):
        draw_view(look(loaded, TEXT), tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(PNG)


def test_an_empty_output_has_no_alignment(tmp_path: Path) -> None:
    """As that of a translator which has hardly been trained."""
    with pytest.raises(DataError, match="an empty text has no alignment"):
        draw_view(look(translator("transformer"), TEXT, ""), tmp_path / "a.png", "alignment")


def test_what_is_not_there_is_refused(seen: AttentionView, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    for options, said in [
        ({"name": "sideways"}, "known are heads"),
        ({"part": "middle"}, "it has encoder, decoder, cross"),
        ({"layer": 4, "head": 1}, "it has 1 to 3"),
        ({"layer": 1, "head": 3}, "it has 1 to 2"),
        ({"name": "average", "head": 1}, "not of one head"),
        ({"name": "alignment", "layer": 1}, "all parts and layers"),
        ({"name": "rollout", "part": "cross"}, "all parts and layers"),
    ]:
        with pytest.raises(ConfigError, match=said):
            draw_view(seen, path, **options)  # type: ignore[arg-type]
    encoder, rnn = look(reader("rotary", tmp_path), TEXT), look(translator("rnn"), TEXT)
    for shown, name in [(encoder, "alignment"), (encoder, "attribution"), (encoder, "positions"), (rnn, "rollout")]:
        with pytest.raises(ConfigError):
            draw_view(shown, path, name)
    assert not path.exists()


def test_the_only_part_is_the_usual_one(tmp_path: Path) -> None:
    assert [one.layer for one in select_maps(look(reader("bert", tmp_path), TEXT), None, None)] == [0, 1, 2]
