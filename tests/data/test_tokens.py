"""The tokenised cache: what was written comes back, and a damaged one is refused."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import StorageError
from qkv.data import cache
from qkv.data.store import Part, find_missing
from qkv.data.token_shards import SHARDS, TokenShards
from qkv.data.tokens import Texts, TokenPairs, chunks, exchange_sources, token_texts, write_texts


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path))


def write_pairs(folder: Path, pairs: Iterable[tuple[list[int], list[int]]], vocabularies: tuple[int, int]) -> None:
    columns = dict(zip(("source", "target"), vocabularies, strict=True))
    Part(SHARDS, folder.name).make(lambda aside: write_texts(aside, pairs, columns))


def open_pairs(folder: Path) -> TokenPairs:
    meta = Part(SHARDS, folder.name).meta()
    if meta is None:
        raise StorageError("no shard")
    return TokenPairs(**TokenShards([{"key": folder.name, **meta}]).columns())


PAIRS = [([5, 6, 7], [8]), ([], [9, 10]), ([65535], []), ([4] * 300, [1, 2, 3])]


def lists(texts: Texts) -> list[list[int]]:
    return [texts[i].tolist() for i in range(len(texts))]


@pytest.mark.parametrize("vocabularies", [(1 << 16, 100), (1 << 16, 1 << 20), (1 << 20, 1 << 16)])
def test_what_was_written_comes_back(tmp_path: Path, vocabularies: tuple[int, int]) -> None:
    write_pairs(tmp_path / "shards" / "cache", iter(PAIRS), vocabularies)
    pairs = open_pairs(tmp_path / "shards" / "cache")
    assert len(pairs) == 4
    assert lists(pairs.source) == [source for source, _ in PAIRS]
    assert lists(pairs.target) == [target for _, target in PAIRS]
    wide = [2 if vocabulary <= 1 << 16 else 4 for vocabulary in vocabularies]
    assert [pairs.source[0].dtype.itemsize, pairs.target[0].dtype.itemsize] == wide


def test_ids_beyond_16_bits_survive(tmp_path: Path) -> None:
    write_pairs(tmp_path / "shards" / "cache", [([70_000, 1 << 19], [65_536])], (1 << 20, 65_537))
    pairs = open_pairs(tmp_path / "shards" / "cache")
    assert (lists(pairs.source), lists(pairs.target)) == ([[70_000, 1 << 19]], [[65_536]])


def test_no_pairs_survive_too(tmp_path: Path) -> None:
    write_pairs(tmp_path / "shards" / "cache", [], (10, 10))
    assert len(open_pairs(tmp_path / "shards" / "cache")) == 0


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def pairs() -> object:
        yield PAIRS[0]
        raise ValueError("bad text")

    with pytest.raises(ValueError, match="bad text"):
        write_pairs(tmp_path / "shards" / "cache", pairs(), (10, 10))  # type: ignore[arg-type]
    assert list((tmp_path / "shards").iterdir()) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0\0"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", ["source.ids", "source.ends", "target.ids", "target.ends"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    write_pairs(tmp_path / "shards" / "cache", PAIRS, (1 << 16, 100))
    DAMAGE[damage](tmp_path / "shards" / "cache" / name)
    with pytest.raises(StorageError):
        open_pairs(tmp_path / "shards" / "cache")


def test_damage_in_the_middle_of_a_large_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGE", 16)
    write_pairs(tmp_path / "shards" / "cache", PAIRS, (1 << 16, 100))
    open_pairs(tmp_path / "shards" / "cache")
    path = tmp_path / "shards" / "cache" / "source.ids"
    content, before = bytearray(path.read_bytes()), path.stat().st_mtime_ns
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError):
        open_pairs(tmp_path / "shards" / "cache")
    os.utime(path, ns=(before, before))  # decay of the disk, which leaves the date
    assert find_missing([Part(SHARDS, "cache")], thorough=True) == {0}


@pytest.mark.parametrize("meta", ["", "{", "null", "[]", "{}", '{"files": {}}', '{"files": [], "kinds": {}}', "\0" * 50])
def test_a_damaged_description_is_refused(tmp_path: Path, meta: str) -> None:
    write_pairs(tmp_path / "shards" / "cache", PAIRS, (1 << 16, 100))
    (tmp_path / "shards" / "cache" / "meta.json").write_text(meta)
    with pytest.raises(StorageError):
        open_pairs(tmp_path / "shards" / "cache")


def test_swapped_sides_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "shards" / "cache", PAIRS, (1 << 16, 1 << 16))
    one, two = (tmp_path / "shards" / "cache" / name for name in ("source.ids", "target.ids"))
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    with pytest.raises(StorageError):
        open_pairs(tmp_path / "shards" / "cache")


def test_texts_in_memory_are_the_same_texts() -> None:
    texts = token_texts([[5, 6], [], [7, 8, 9]])
    assert lists(texts) == [[5, 6], [], [7, 8, 9]]
    assert texts.lengths(np.array([2, 0, 1])).tolist() == [3, 2, 0]
    assert texts.starts(np.array([2, 0, 1])).tolist() == [2, 0, 2]
    assert len(token_texts([])) == 0


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9])
def test_chunks_hold_everything_in_order(count: int) -> None:
    items = [(str(i), str(-i)) for i in range(count)]
    found = list(chunks(items, 4))
    assert [item for chunk in found for item in chunk] == items
    assert all(len(chunk) == 4 for chunk in found[:-1])
    assert all(found)


@pytest.mark.parametrize(("count", "most", "chosen"), [(5, 9, 5), (5, 5, 5), (40, 6, 6), (2, 8, 2)])
def test_sources_are_exchanged_among_some_pairs(count: int, most: int, chosen: int) -> None:
    sources, targets = ([[number + first] * (number % 3 + 1) for number in range(count)] for first in (100, 500))
    pairs = TokenPairs(token_texts(sources), token_texts(targets), token_texts([[9] * len(text) for text in sources]))
    own, exchanged = exchange_sources(pairs, most)
    assert lists(own.target) == lists(exchanged.target) and len(own) == len(exchanged) == chosen
    numbers = [text[0] - 500 for text in lists(own.target)]
    assert numbers == sorted({*numbers}) and numbers[0] == 0 and numbers[-1] == count - 1
    assert lists(own.source) == [sources[number] for number in numbers]
    assert sorted(lists(own.source)) == sorted(lists(exchanged.source))
    assert not any(one == other for one, other in zip(lists(own.source), lists(exchanged.source), strict=True))
    for each in (own, exchanged):
        assert each.head is not None and list(map(len, lists(each.head))) == list(map(len, lists(each.source)))


def test_a_folder_that_another_machine_writes_is_not_touched(tmp_path: Path) -> None:
    """Locks may hold for one machine only, where several share the cache."""
    other = tmp_path / "shards" / ".cache.another-machine.1.partial"
    other.mkdir(parents=True)
    with cache.lock_folder(tmp_path / "shards" / "cache"):
        write_pairs(tmp_path / "shards" / "cache", PAIRS, (1 << 16, 100))
    assert other.exists()
