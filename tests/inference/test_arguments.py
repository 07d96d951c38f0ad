"""Wrong types raise a ConfigError of one line, and loaded runs have a useful repr."""

from pathlib import Path
from typing import Any

import pytest

import qkv
from encoder_runs import write_run
from qkv.base.errors import ConfigError
from qkv.inference.arguments import require_list, require_text, require_texts


@pytest.mark.parametrize("given", ["a text", b"bytes", 5, None])
def test_a_list_of_texts_is_wanted(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^translate takes a list of texts, got \w+; for one text, give \[text\]$"):
        require_texts(given, "translate")


def test_an_element_that_is_no_text_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^generate takes a list of prompts, and prompt 2 is NoneType; give a str$"):
        require_texts(["a", None], "generate", "prompt")
    with pytest.raises(ConfigError, match=r"^look takes a text, got NoneType; give a str$"):
        require_text(None, "look")


def test_any_iterable_will_do() -> None:
    assert require_texts(iter(["a", "b"]), "embed") == ["a", "b"] == require_list(("a", "b"), "predict", "example")


def test_a_loaded_encoder(tmp_path: Path) -> None:
    encoder: Any = qkv.load(write_run(tmp_path / "bert"), "cpu")
    assert repr(encoder) == f"TextEncoder('{tmp_path / 'bert'}': bert, trained for masked, on cpu)"
    for wrong in (
        lambda: encoder.embed(5),
        lambda: encoder.fill("a [MASK]"),
        lambda: encoder.fill([None]),
        lambda: encoder.fill(["a [MASK]"], top="x"),
        lambda: encoder.fill(["a [MASK]"], top=-1),
        lambda: qkv.look(encoder, "a text").save(3),
        lambda: encoder.score([None]),
        lambda: encoder.embed("a"),
    ):
        with pytest.raises(ConfigError) as refused:
            wrong()
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="layer takes a number or mix, got float"):
        encoder.embed(["a"], layer=0.5)


def test_look_refuses_other_things() -> None:
    with pytest.raises(ConfigError, match="look takes the folder of a run or a loaded run, got int"):
        qkv.look(5, "a text")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="look takes a text, got NoneType"):
        qkv.look("nowhere", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="load takes the folder of a run, got NoneType"):
        qkv.load(None)  # type: ignore[arg-type]
