"""Glossaries: which files are refused and why, and which terms are found in a text."""

from pathlib import Path

import pytest

from qkv.base.errors import DataError
from qkv.text.glossary import Glossary


def found(glossary: Glossary, text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(text[match.start : match.end], match.targets) for match in glossary.find(text)]


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text(
        "# ours\ncar park\tParkhaus|Parkplatz\n\nqkv\t=\r\ndevice*\tGerät|Geräte\nUS\tUSA\nus\tuns\n", encoding="utf-8"
    )
    glossary = Glossary.read(file)
    assert list(map(str, glossary.terms)) == [
        "car park -> Parkhaus|Parkplatz", "qkv -> =", "device* -> Gerät|Geräte", "US -> USA", "us -> uns",
    ]  # fmt: skip
    text = "Devices in US car parks? Not us, not qkv; a car park."
    wanted = {
        "Devices": ("Gerät", "Geräte"),
        "US": ("USA",),
        "us": ("uns",),
        "qkv": ("qkv",),
        "car park": ("Parkhaus", "Parkplatz"),
    }
    assert found(glossary, text) == list(wanted.items())


WRONG = {
    b"car\t\n": "line 1 has an empty translation; to keep a term untranslated, give =",
    b"# x\n \tAuto\n": "line 2 has an empty term",
    b"*\tAuto\n": "line 1 has an empty term",
    b"car\tAuto|\n": "line 1 has an empty translation",
    b"car\n": "line 1 has 1 columns",
    b"car\tAuto\tWagen\n": "line 1 has 3 columns.*write | between",
    b"car\tAuto\nbus\tBus\ncar\tWagen\n": "line 3: the term 'car' is there already, on line 1, as car -> Auto; join both with |",
    b"car\tAuto\ncar\tAuto\n": "line 2: the term 'car' is there already, on line 1; leave one out",
    b"car\tAuto\nb\xfcs\tBus\n": "line 2 is not UTF-8 text",
    b"car\tAuto*\n": r"line 1: \* is for source terms; list the translation's forms",
    b"car\t=|Auto\n": "line 1 has =, which keeps the term, beside other translations",
    b"# nothing\n": "no terms",
    b"car\t" + b"x" * 300: "line 1 has a term of more than 200 characters",
}


@pytest.mark.parametrize("content", WRONG, ids=repr)
def test_each_mistake_is_one_line_with_its_place(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"terms.tsv: {WRONG[content].replace('|', '[|]')}") as caught:
        Glossary.read(file)
    assert "\n" not in str(caught.value)


def test_mappings_are_checked_too(tmp_path: Path) -> None:
    assert [term.targets for term in Glossary({"car": ["Auto", "Wagen"], "bus": "Bus|Omnibus"}).terms] == [
        ("Auto", "Wagen"),
        ("Bus", "Omnibus"),
    ]
    for wrong in ({"car": ""}, {"": "x"}, {"car": []}, {"car": 3}, {3: "x"}):
        with pytest.raises(DataError):
            Glossary(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no such file"):
        Glossary.read(tmp_path / "none.tsv")


def test_the_longest_term_wins_at_word_boundaries_alone() -> None:
    glossary = Glossary({"car": "Auto", "car park": "Parkhaus", "car park fee": "Gebühr", "e-mail": "E-Mail", "C++": "="})
    assert [text for text, _ in found(glossary, "a car park, scar, cars, car. E-mail in C++!")] == [
        "car park",
        "car",
        "E-mail",
        "C++",
    ]
    assert [text for text, _ in found(glossary, "car park feeling, car park fee")] == ["car park", "car park fee"]


def test_a_text_may_end_with_a_term_although_longer_ones_begin_alike() -> None:
    glossary = Glossary({"car": "Auto", "carriage": "Wagen", "carpet*": "Teppich"})
    assert found(glossary, "A car") == [("car", ("Auto",))]
    assert found(glossary, "carriage") == [("carriage", ("Wagen",))]


def test_scripts_without_spaces_have_terms_anywhere() -> None:
    assert [text for text, _ in found(Glossary({"设备": "device", "重启": "restart"}), "请重启设备吗")] == ["重启", "设备"]


def test_case() -> None:
    glossary = Glossary({"switch": "Schalter", "Apple": "="})
    assert [text for text, _ in found(glossary, "Switch, switch, SWITCH, Apple, apple")] == ["Switch", "switch", "Apple"]
    every = Glossary({"switch": "Schalter", "Apple": "="}, ignore_case=True)
    assert found(every, "SWITCH apple") == [("SWITCH", ("Schalter",)), ("apple", ("apple",))]
    with pytest.raises(DataError, match="'US' is there already, as 'us', as us -> uns"):
        Glossary({"us": "uns", "US": "USA"}, ignore_case=True)


def test_an_ending_is_short() -> None:
    glossary = Glossary({"connect*": "verbinden"})
    words = "connect connects connected connection connectivity"
    assert [text for text, _ in found(glossary, words)] == ["connect", "connects", "connected", "connection"]


def test_terms_that_touch_taken_spans_are_left_out() -> None:
    text = "the {car} and the car"
    assert [match.start for match in Glossary({"car": "Auto"}).find(text, [(4, 9)])] == [18]
