"""Changes written by people, as the command line takes them: `cross.1.2` is head 2 of layer 1's cross-attention, from 1."""

import re
from collections.abc import Iterable, Sequence

from qkv.base.errors import ConfigError
from qkv.lens.changes import Change, FixedWeight, SoftmaxTemperature, WithoutHead, WithoutLayer
from qkv.lens.inspectors import CROSS
from qkv.lens.word_edits import DeleteWord, MoveWord, ReplaceWord, WordEdit

_PLACE = r"(encoder|decoder|cross)\.([1-9]\d*)(?:\.([1-9]\d*))?"
_NUMBER = r"(\d*\.?\d+)"
PLACES = "a part (encoder, decoder or cross), a layer and a head, such as cross.1.2"


def parse_changes(
    without: Iterable[str],
    weights: Iterable[str],
    temperatures: Iterable[str],
    replaced: Iterable[str],
    deleted: Iterable[int],
    moved: Iterable[str],
) -> list[Change | WordEdit]:
    """Read options of the command line; edits of words come in the order replaced, deleted, moved."""
    changes: list[Change | WordEdit] = [_without(option) for option in without]
    changes += [_weight(option) for option in weights]
    changes += [_temperature(option) for option in temperatures]
    for option in replaced:
        number, text = _match("--replace", r"([1-9]\d*)=(.*\S.*)", option, "a word's number and a text, such as 2=cat")
        changes.append(ReplaceWord(int(number) - 1, text))
    changes += [DeleteWord(number - 1) for number in deleted]
    for option in moved:
        word, to = _match("--move", r"([1-9]\d*),([1-9]\d*)", option, "a word's number and its new one, such as 4,1")
        changes.append(MoveWord(int(word) - 1, int(to) - 1))
    if not changes:
        raise ConfigError("nothing to change; give --without, --weight, --temperature, --replace, --delete or --move")
    return changes


def _without(option: str) -> Change:
    part, layer, head = _match("--without", _PLACE, option, f"{PLACES}, or a part and a layer")
    if head is None and part != CROSS:
        return WithoutLayer(f"{part}.{int(layer) - 1}")
    return WithoutHead(_attention(part, layer), _head(head))


def _weight(option: str) -> Change:
    wanted = "a head, two tokens and a weight, such as cross.1.2:3,4=0.9"
    part, layer, head, query, key, value = _match("--weight", rf"{_PLACE}:([1-9]\d*),([1-9]\d*)={_NUMBER}", option, wanted)
    return FixedWeight(_attention(part, layer), int(query) - 1, int(key) - 1, float(value), _head(head))


def _temperature(option: str) -> Change:
    wanted = "a temperature, such as 0.5, or a place and one, such as cross.1.2=0.5"
    *place, value = _match("--temperature", rf"(?:{_PLACE}=)?{_NUMBER}", option, wanted)
    if place[0] is None:
        return SoftmaxTemperature(float(value))
    return SoftmaxTemperature(float(value), _attention(place[0], place[1]), _head(place[2]))


def _match(name: str, pattern: str, option: str, wanted: str) -> Sequence[str]:
    found = re.fullmatch(pattern, option.strip())
    if found is None:
        raise ConfigError(f"{name} {option} is not {wanted}")
    return found.groups()


def _attention(part: str, layer: str) -> str:
    number = int(layer) - 1
    return f"decoder.{number}.cross" if part == CROSS else f"{part}.{number}.self"


def _head(head: str | None) -> int | None:
    return None if head is None else int(head) - 1
