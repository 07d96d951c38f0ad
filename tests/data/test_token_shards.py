"""Shards: texts, batches and resuming are those of one array; a window reads few shards at a time, and every pair once."""

import os
import threading
import tracemalloc
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from object_store import BUCKET, BUSY, FORBIDDEN, ObjectStore
from qkv.base import urls
from qkv.base.errors import StorageError
from qkv.data import cache, copies, store, token_shards, tokenised_pairs
from qkv.data.batches import START, Batches, Position
from qkv.data.cache import cache_folder
from qkv.data.corpora import Tokenizers, check_corpus
from qkv.data.documents import tokenise_documents
from qkv.data.order import Order
from qkv.data.store import Part
from qkv.data.token_shards import SHARDS, TokenShards
from qkv.data.tokenised_pairs import PairFormat, TokenisedCorpus, make_shards, tokenise_corpus
from qkv.data.tokens import TokenPairs, map_file
from qkv.data.workers import Work
from qkv.text import documents, input_files, pieces
from qkv.text.check import CheckConfig
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.documents import find_document_files
from qkv.text.input_files import UrlFile
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

LINES = [f"{'a b c '[: 2 * (number % 3) + 1]}{number}\t{number} x" for number in range(300)]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["abc x 0123456789"])
    return Tokenizers(tokenizer, tokenizer)


def tokenised(location: str, tokenizers: Tokenizers) -> TokenisedCorpus:
    corpus = check_corpus(ParallelCorpusConfig(pairs=location), CheckConfig(), None, set(), Work(1))
    return tokenise_corpus(corpus, tokenizers, PairFormat(20), Work(1))


@pytest.fixture
def both(tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch) -> tuple[TokenisedCorpus, TokenisedCorpus]:
    """The same corpus as one shard and as several."""
    (tmp_path / "train.tsv").write_text("\n".join(LINES) + "\n")
    one = tokenised(str(tmp_path / "train.tsv"), tokenizers)
    monkeypatch.setattr(pieces, "PIECE", 400)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cut"))
    return one, tokenised(str(tmp_path / "train.tsv"), tokenizers)


def make_batches(corpus: TokenisedCorpus, window: int | None = None, pool: int = 64) -> Batches:
    made = Batches(
        [corpus.pairs], [1.5], seed=3, tokens=200, widths=(20, 20), eos=1, window=window, shards=[corpus.shards]
    )  # fmt: skip
    made.pool_size = pool
    return made


def first(batches: Batches, count: int, at: Position = START) -> list[tuple[list, Position]]:
    return [([rows.ids.tolist() for rows in b.inputs], b.after) for b in islice(batches.starting(at), count)]


def test_texts_of_shards_are_those_of_one_array(both: tuple[TokenisedCorpus, TokenisedCorpus]) -> None:
    one, many = both
    assert len(many.shards) > 5 and sum(many.shards) == len(many.pairs) == len(LINES)
    assert (one.too_long, one.longest, one.terms) == (many.too_long, many.longest, many.terms)
    index = np.random.default_rng(1).permutation(len(LINES))[:200]
    for name in ("source", "target"):
        whole, cut = getattr(one.pairs, name), getattr(many.pairs, name)
        assert whole.tokens == cut.tokens
        for ask in ("starts", "lengths", "gather"):
            assert getattr(whole, ask)(index).tolist() == getattr(cut, ask)(index).tolist()
        assert whole[17].tolist() == cut[17].tolist()


def test_shards_do_not_change_the_order_of_an_epoch(both: tuple[TokenisedCorpus, TokenisedCorpus]) -> None:
    one, many = map(make_batches, both)
    assert first(one, 60) == first(many, 60)
    assert first(make_batches(both[1], window=10_000), 60) == first(one, 60)  # a window that covers everything


def test_a_windowed_run_resumes_anywhere(both: tuple[TokenisedCorpus, TokenisedCorpus]) -> None:
    found = first(make_batches(both[1], window=70), 80)
    assert found != first(make_batches(both[1]), 80)
    assert {position.epoch for _, position in found} >= {0, 1}
    for number in (0, 13, 40):
        assert first(make_batches(both[1], window=70), 20, found[number][1]) == found[number + 1 : number + 21]


@pytest.mark.parametrize("weight", [1.0, 2.5, 0.3])
def test_windows_show_every_pair_as_often_as_its_weight_says(weight: float) -> None:
    shards = [[30, 1, 25, 44], [10, 10]]
    order = Order([100, 20], [weight, 1.0], 7, 40, shards)
    seen = [order.at(epoch, np.arange(len(order))) for epoch in (0, 1)]
    for corpus, pair in seen:
        counts = [np.bincount(pair[corpus == number], minlength=size) for number, size in enumerate((100, 20))]
        assert counts[0].sum() == round(100 * weight) and counts[0].max() - counts[0].min() <= 1
        assert (counts[1] == 1).all()
        bounds = np.cumsum([0, 30, 1, 25, 44])
        for start in range(0, len(order), 40):
            here = corpus[start : start + 40] == 0
            touched = np.unique(np.searchsorted(bounds, pair[start : start + 40][here], side="right"))
            assert len(touched) <= 4
    assert (seen[0][1] != seen[1][1]).any()
    for start, stop in pairwise([0, 1, 17, 45, len(order)]):
        assert order.at(1, np.arange(start, stop))[1].tolist() == seen[1][1][start:stop].tolist()


def test_documents_of_pieces_are_those_of_the_file(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Document {number} a.\nb c. a b!" + "\nlong c" * (number % 7) for number in range(40)]
    (tmp_path / "a.txt").write_bytes("\n \n\n".join(texts).encode() + b"\n\nbad \xff line\nx")
    (tmp_path / "b.txt").write_text("no blank line\n" * 60)
    files = find_document_files([str(tmp_path / "*.txt")])
    one, counts = tokenise_documents(files, tokenizers.source, Work(1))
    monkeypatch.setattr(documents, "PIECE", 150)
    monkeypatch.setattr(pieces, "PIECE", 150)
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cut"))
    many, same = tokenise_documents(files, tokenizers.source, Work(1))
    assert len(many.shards) > 5 and counts == same and counts.undecodable[0][1] == same.undecodable[0][1] > 150
    assert one.document.tolist() == many.document.tolist()
    index = np.arange(len(one))
    for name in ("tokens", "sentences", "flags"):
        assert getattr(one, name).gather(index).tolist() == getattr(many, name).gather(index).tolist()


@pytest.fixture
def remote(tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A corpus on the store, which is also the cache; this machine has an empty cache of its own."""
    monkeypatch.setattr(pieces, "PIECE", 600)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = f"s3://{BUCKET}/{tmp_path.name}"
    monkeypatch.setenv("QKV_CACHE", f"{folder}/cache")
    urls.write_object(f"{folder}/train-1.tsv", ("\n".join(LINES[:100]) + "\n").encode())
    urls.write_object(f"{folder}/train-2.tsv", ("\n".join(LINES[100:]) + "\n").encode())
    return f"{folder}/train-*.tsv"


def test_a_corpus_on_a_store_gives_the_same_batches(
    remote: str, store: ObjectStore, both: tuple[TokenisedCorpus, TokenisedCorpus], tokenizers: Tokenizers,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("QKV_CACHE", remote.replace("train-*.tsv", "cache"))
    store.faults.extend([BUSY, "", BUSY])
    made = tokenised(remote, tokenizers)
    assert first(make_batches(made), 20) == first(make_batches(both[0]), 20)
    # Another machine reads what is there, as it needs it.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    store.requests.clear()
    again = tokenised(remote, tokenizers)
    batches = make_batches(again, window=40, pool=20)
    first(batches, 2)
    fetched = {path for method, path in store.requests if method == "GET" and "source.ids" in path}
    assert not any(method == "PUT" for method, _ in store.requests) and 0 < len(fetched) < len(again.shards) - 1
    monkeypatch.setenv(copies.BOUND, "1e-6")
    first(batches, 60)
    kept = list((cache_folder() / "copies").glob("*/*"))
    assert sum(path.stat().st_size for path in kept) < 1000 + max(path.stat().st_size for path in kept)


def test_a_copy_that_is_deleted_before_it_is_opened_is_fetched_again(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process deletes it, to stay within the bound."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QKV_CACHE", f"memory://{tmp_path.name}")
    (tmp_path / "train.tsv").write_text("\n".join(LINES) + "\n")
    deleted = []

    def delete_first(path: Path, kind: object) -> np.ndarray:
        if path.name not in deleted:
            deleted.append(path.name)
            path.unlink()
        return map_file(path, kind)

    monkeypatch.setattr(token_shards, "map_file", delete_first)
    made = tokenised(str(tmp_path / "train.tsv"), tokenizers)
    assert made.pairs.source.gather(np.arange(300)).size and {"source.ids", "target.ends"} <= {*deleted}


def test_a_store_is_asked_for_many_small_things_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QKV_CACHE", f"memory://{tmp_path.name}")
    files = [f"memory://{tmp_path.name}/run/{name}" for name in "abc"]
    for file in files:
        urls.write_object(file, file.encode())
    all_ask = threading.Barrier(3, timeout=10)  # breaks if one is asked for before another
    for room, name in (store, "read_bytes"), (copies, "find_info"), (cache, "find_info"), (input_files, "find_info"):
        monkeypatch.setattr(room, name, lambda url, ask=getattr(urls, name): (all_ask.wait(), ask(url))[1])
    assert store.find_metas([store.Part("shards", key) for key in "abc"]) == [None] * 3
    folder = copies.local_folder(f"memory://{tmp_path.name}/run")
    assert [path.read_text() for path in sorted(folder.iterdir())] == files
    assert len({*cache.cached_digests([UrlFile(file) for file in files])}) == 3
    assert pieces.cut_files(pieces.cut_lines, [UrlFile(file) for file in files]) == [
        [pieces.CorpusPiece((file,))] for file in files
    ]


def test_a_cache_that_cannot_be_written_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_CACHE", "https://example.com/cache")
    with pytest.raises(StorageError, match=r"https://example\.com/cache/.*: an address of the web cannot be written"):
        Part(SHARDS, "key").make(lambda _: pytest.fail("something was made"))


def test_a_copied_run_in_use_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("QKV_CACHE", f"memory://{tmp_path.name}")
    monkeypatch.setenv(copies.BOUND, "1e-9")
    for run in "one", "two":
        urls.write_object(f"memory://{tmp_path.name}/{run}/model", run.encode())
    one = copies.local_folder(f"memory://{tmp_path.name}/one")
    two = copies.local_folder(f"memory://{tmp_path.name}/two")
    assert (one / "model").read_text() == "one" and (two / "model").read_text() == "two"
    os.close(copies._held.pop(one))  # its process has ended
    copies.delete_copies(two)
    assert not one.exists() and (two / "model").exists()


def test_a_damaged_or_missing_shard_is_one_line_and_is_made_again(
    remote: str, store: ObjectStore, tokenizers: Tokenizers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tokenised(remote, tokenizers)
    wanted = made.pairs.source.gather(np.arange(len(made.pairs))).tolist()
    shards = urls.list_files(f"{remote[:-11]}cache/shards/*/source.ids")
    urls.write_object(shards[0], bytes(urls.find_info(shards[0]).size or 0))
    urls.delete_object(shards[1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    for _ in shards[:2]:
        with pytest.raises(StorageError, match=r"source\.ids: (missing or damaged; run qkv prepare|no such file)"):
            tokenised(remote, tokenizers).pairs.source.gather(np.arange(300))
    corpus = check_corpus(ParallelCorpusConfig(pairs=remote), CheckConfig(), None, set(), Work(1))
    assert make_shards(corpus, tokenizers, PairFormat(20), Work(1), slice(0, 1), thorough=True) >= 0
    assert make_shards(corpus, tokenizers, PairFormat(20), Work(1), thorough=True) == 0
    again = tokenised(remote, tokenizers).pairs.source
    assert again.gather(np.arange(len(again))).tolist() == wanted
    store.always = FORBIDDEN
    with pytest.raises(StorageError, match=rf"s3://{BUCKET}/.*: no rights there"):
        tokenised(remote, tokenizers)


def sharded_pairs(shards: int, size: int) -> TokenisedCorpus:
    """Write shards of pairs of one token each."""
    entries = []
    for number in range(shards):
        part = Part(SHARDS, f"{number}-{size}")

        def fill(folder: Path) -> dict:
            for name in ("source", "target"):
                np.ones(size, dtype=np.uint16).tofile(folder / f"{name}.ids")
                np.arange(1, size + 1).tofile(folder / f"{name}.ends")
            kinds = {"source": "uint16", "target": "uint16"}
            return {"kinds": kinds, "texts": size, "tokens": dict.fromkeys(kinds, size)}

        part.make(fill)
        entries.append({"key": part.key, **(part.meta() or {})})
    return TokenisedCorpus(TokenPairs(**TokenShards(entries).columns()), 0, 0, (1, 1), [size] * shards)


@pytest.mark.parametrize("window", [None, 500])
def test_training_holds_nothing_for_each_pair(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenised_pairs, "SAMPLED_PAIRS", 1000)
    first(make_batches(sharded_pairs(8, 16), window), 1)  # imports what is imported late
    peaks = []
    for size in (1 << 12, 1 << 16):
        corpus = sharded_pairs(8, size)
        tracemalloc.start()
        corpus.sample()
        found = first(make_batches(corpus, window), 30)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(found) == 30
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.needs_linux
def test_a_corpus_may_have_more_shards_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.data.token_shards.open_file_limit", lambda: 64)
    corpus = sharded_pairs(30, 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert corpus.pairs.source.gather(np.arange(90)).sum() == corpus.pairs.target.gather(np.arange(90)).sum() == 90
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 16
