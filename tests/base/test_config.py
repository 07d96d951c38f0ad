"""Configuration: mistakes are named, values survive YAML, settings replace single values."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from qkv.base.config import Config, describe_differences, differences, dump_yaml, parse, read_yaml, with_settings
from qkv.base.errors import ConfigError


class Inner(Config):
    width: int = Field(default=512, gt=0)
    norm: Literal["pre", "post"] = "post"
    rates: tuple[float, float] = (0.9, 0.98)


class Outer(Config):
    name: str = "yes"
    small: float = 1e-5
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    either: str | Inner | None = None


def mistake(values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(Outer, values, "my.yaml")
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("my.yaml: ")
    return text.removeprefix("my.yaml: ")


@pytest.mark.parametrize(
    ("values", "key", "nearest"),
    [
        ({"nmae": "x"}, "nmae", "name"),
        ({"inner": {"widht": 3}}, "inner.widht", "width"),
        ({"several": [{}, {"nrom": "pre"}]}, "several.1.nrom", "norm"),
        ({"either": {"rate": [1, 2]}}, "either.rate", "rates"),
        ({"inner": {"Width": 3}}, "inner.Width", "width"),
        ({"width": 3}, "width", "either.width"),  # known, but not there: the place is named too
        ({"inner": {"smal": 3}}, "inner.smal", "small"),
    ],
)
def test_an_unknown_key_names_the_nearest(values: dict[str, Any], key: str, nearest: str) -> None:
    assert mistake(values) == f"unknown key {key!r}; did you mean {nearest!r}?"


def test_the_place_named_is_below_the_mistake_where_there_is_one() -> None:
    class Middle(Config):
        first: Inner = Inner()

    class Top(Config):
        again: Middle = Middle()
        middle: Middle = Middle()

    with pytest.raises(ConfigError, match=r"unknown key 'middle\.norm'; did you mean 'middle\.first\.norm'"):
        parse(Top, {"middle": {"norm": "pre"}}, "x")


def test_an_unknown_key_like_no_other_names_those_that_are_there() -> None:
    assert mistake({"zzzzzzzz": 1}) == "unknown key 'zzzzzzzz'; known are name, small, inner, several, either"
    assert mistake({"inner": {"heads": 1}}) == "unknown key 'inner.heads'; known in inner are width, norm, rates"


def test_keys_that_do_not_go_together_are_told_without_the_whole_section() -> None:
    class Couple(Config):
        low: int = 0
        high: int = 1

        @model_validator(mode="after")
        def _in_order(self) -> "Couple":
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    class Top(Config):
        couple: Couple = Couple()

    with pytest.raises(ConfigError, match=r"^x: couple: low is above high$"):
        parse(Top, {"couple": {"low": 2}}, "x")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"inner": {"width": "wide"}}, ["inner.width", "'wide'", "integer"]),
        ({"inner": {"width": 0}}, ["inner.width", "greater than 0", "got 0"]),
        ({"inner": {"norm": "mid"}}, ["inner.norm", "'pre' or 'post'", "'mid'"]),
        ({"inner": {"rates": [1]}}, ["inner.rates"]),
        ({"name": "x" * 0, "small": "y" * 1000}, ["small", "...", "number"]),
    ],
)
def test_a_wrong_value_is_named_with_its_key(values: dict[str, Any], words: list[str]) -> None:
    text = mistake(values)
    assert all(word in text for word in words), text
    assert len(text) < 250


def test_more_mistakes_are_counted() -> None:
    assert mistake({"nmae": "x", "small": "y", "inner": {"width": 0}}).endswith("(and 2 more)")


@pytest.mark.parametrize("values", [None, [1], "text"])
def test_what_is_not_keys_and_values_is_refused(values: Any) -> None:
    assert "expected keys and values" in mistake(values)


def test_a_config_does_not_change() -> None:
    with pytest.raises(ValidationError):
        Inner().width = 3


@pytest.mark.parametrize("name", ["yes", "null", "1e-3", "0x10", "3", "a: b", "- x", "größe 大小", "two\nlines", "", " x ", "#"])
def test_a_config_survives_yaml(tmp_path: Path, name: str) -> None:
    config = Outer(name=name, inner=Inner(width=3, rates=(0.1, 1e-20)), several=(Inner(), Inner(norm="pre")), either=Inner())
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_yaml(config), encoding="utf-8")
    assert parse(Outer, read_yaml(path), "again") == config


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("name=x", {"name": "x"}),
        ("inner.width=3", {"inner": {"width": 3, "norm": "pre"}}),
        ("small=1e-3", {"small": 0.001}),
        ("small=-2E5", {"small": -200000.0}),
        ("name=e5", {"name": "e5"}),
        ("name=3e4x", {"name": "3e4x"}),
        ("name=a=b", {"name": "a=b"}),
        ("name={", {"name": "{"}),
        ("name=#1 String", {"name": "#1 String"}),  # no comment, as it would be in a file
        ("name=my #2.txt", {"name": "my #2.txt"}),
        ("name='#1'", {"name": "#1"}),
        ("several=[{width: 3}] # so", {"several": [{"width": 3}]}),
        ("either=null", {"either": None}),
        ("several=[{width: 3}]", {"several": [{"width": 3}]}),
        ("either.width=2", {"either": {"width": 2}}),
    ],
)
def test_a_setting_replaces_or_adds_one_value(setting: str, wanted: dict[str, Any]) -> None:
    before = {"name": "n", "inner": {"width": 1, "norm": "pre"}, "either": "text"}
    assert with_settings(before, [setting]) == {**before, **wanted}
    assert before == {"name": "n", "inner": {"width": 1, "norm": "pre"}, "either": "text"}  # not changed in place


def test_settings_act_one_after_the_other() -> None:
    assert with_settings({}, ["a.b.c=1", "a.b.d=2", "a.b.c=3"]) == {"a": {"b": {"c": 3, "d": 2}}}


@pytest.mark.parametrize("setting", ["name", "=3", ""])
def test_a_setting_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        with_settings({}, [setting])


def test_differences_name_key_old_and_new() -> None:
    new = Outer(name="no", inner=Inner(width=3), several=(Inner(),))
    found = differences(Outer(), new)
    assert found[:2] == ["name: 'yes' -> 'no'", "inner.width: 512 -> 3"]
    assert len(found) == 3
    assert found[2].startswith("several: [] -> [{")
    assert differences(new, new) == []


def test_differences_are_those_of_leaves_and_a_message_names_five() -> None:
    class Sections(Config):
        inner: dict[str, Any] | None = None
        corpora: tuple[dict[str, Any], ...] = ()
        names: tuple[str, ...] = ()

    old = Sections(corpora=[{"pairs": "a", "weight": 1}], names=["en", "de"])
    new = Sections(inner={"a": 1, "b": None}, corpora=[{"pairs": "b", "weight": 1}, {"pairs": "c"}], names=["en"])
    assert differences(old, new) == [
        "inner.a: None -> 1",
        "corpora[0].pairs: 'a' -> 'b'",
        "corpora[1].pairs: None -> 'c'",
        "names: ['en', 'de'] -> ['en']",
    ]
    assert differences(Sections(), Sections(inner={"a": None})) == ["inner: None -> {'a': None}"], "none is lost"
    assert describe_differences(["a", "b", "c", "d", "e"]) == "a; b; c; d; e"
    assert describe_differences(["a", "b", "c", "d", "e", "f", "g"]) == "a; b; c; d; e; and 2 more"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    class Needy(Config):
        needed: int

    with pytest.raises(ConfigError, match=r"my\.yaml: missing key 'needed'"):
        parse(Needy, {}, "my.yaml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1", "not valid YAML"),
        (b"a: b: c", "line 1: not valid YAML"),
        (b"- a", "keys and values, got list"),
        (b"", "keys and values, got NoneType"),
        (b"a: \xff\xfe", "cannot be read as a recipe"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_yaml(tmp_path / "none.yaml")
