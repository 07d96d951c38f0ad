"""From files to tokens: each step is done once, remembered by content, and done again where what is remembered is damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.base import urls
from qkv.base.errors import StorageError
from qkv.data import corpora, documents, tokenised_pairs
from qkv.data.cache import cache_folder
from qkv.data.corpora import CheckedCorpus, Tokenizers, check_corpus
from qkv.data.documents import tokenise_documents
from qkv.data.tokenised_pairs import PairFormat, tokenise_corpus
from qkv.data.tokens import TokenPairs
from qkv.data.trees import SourceFormat
from qkv.data.workers import Work
from qkv.text import pieces
from qkv.text.check import CheckConfig
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

LINES = [("a b", "x y"), ("c", "z"), ("same", "same"), ("b b b", "y y y y")]


@pytest.fixture
def corpus(tmp_path: Path) -> ParallelCorpusConfig:
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in LINES))
    return ParallelCorpusConfig(pairs=str(path))


@pytest.fixture
def tokenizers() -> Tokenizers:
    tokenizer = train_tokenizer(TokenizerConfig(kind="characters"), ["abc xyz"])
    return Tokenizers(tokenizer, tokenizer)


def read(corpus: ParallelCorpusConfig, rules: CheckConfig | None = None, held_out: frozenset[int] = frozenset()) -> CheckedCorpus:
    return check_corpus(corpus, rules or CheckConfig(), None, set(held_out), Work())


def texts(pairs: TokenPairs, tokenizers: Tokenizers) -> list[tuple[str, str]]:
    decode = tokenizers.source.decode
    return [(decode(pairs.source[i].tolist()), decode(pairs.target[i].tolist())) for i in range(len(pairs))]


def cached(kind: str) -> list[Path]:
    return sorted((cache_folder() / kind).iterdir())


def test_checked_pairs_and_what_was_dropped(corpus: ParallelCorpusConfig) -> None:
    found = read(corpus)
    assert list(found) == [LINES[0], LINES[1], LINES[3]]
    assert (found.report.read, found.report.kept) == (4, 3)


def test_the_second_time_nothing_is_read(corpus: ParallelCorpusConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(corpus)
    monkeypatch.setattr(corpora, "read_piece", lambda *_: pytest.fail("the corpus was read again"))
    second = read(corpus.model_copy(update={"weight": 3.0}))  # a weight does not change what is in it
    assert list(second) == list(first)
    assert second.report.as_dict() == first.report.as_dict()


def test_other_content_or_rules_or_held_out_texts_are_read_anew(corpus: ParallelCorpusConfig) -> None:
    keys = [read(corpus).key, read(corpus, CheckConfig(identical="keep")).key, read(corpus, held_out=frozenset({7})).key]
    Path(str(corpus.pairs)).write_text("a\tb\n")
    again = read(corpus)
    assert list(again) == [("a", "b")]
    assert len({*keys, again.key}) == 4


@pytest.mark.parametrize("kind", ["pairs", "aligned", "documents"])
def test_a_file_that_is_replaced_while_its_pieces_are_read_is_refused(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Pieces of both versions would be mixed, under the name of the old one."""
    path, other = tmp_path / "train.txt", tmp_path / "other.txt"
    path.write_text("old\tx\n" * 3)
    other.write_text("y\n" * 3)

    def replacing(real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*given: Any) -> Any:
            path.write_text("new\tx\n" * 3)  # of the same size
            return real(*given)

        return function

    def work() -> None:
        if kind == "documents":
            tokenise_documents([path], tokenizers.source, Work())
        else:
            files = {"pairs": str(path), "format": "tsv"} if kind == "pairs" else {"source": str(path), "target": str(other)}
            read(ParallelCorpusConfig(**files))

    if kind == "aligned":
        monkeypatch.setattr(pieces, "PIECE", 4)
        monkeypatch.setattr(corpora, "cut_aligned", replacing(pieces.cut_aligned))
    elif kind == "pairs":
        monkeypatch.setattr(corpora, "read_piece", replacing(pieces.read_piece))
    else:
        monkeypatch.setattr(documents, "read_file", replacing(documents.read_file))
    with pytest.raises(StorageError, match=r"train\.txt: was replaced while it was read; run the same command again"):
        work()
    assert not [*cache_folder().glob("pieces/*"), *cache_folder().glob("shards/*"), *cache_folder().glob("cuts/*")]
    work()


@pytest.mark.parametrize("name", ["checked/*/index.json", "pieces/*/meta.json", "pieces/*/pairs.tsv"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"a b\tx y\n", None])
def test_damaged_checked_text_is_made_again(corpus: ParallelCorpusConfig, name: str, content: bytes | None) -> None:
    read(corpus)
    [path] = cache_folder().glob(name)
    path.unlink() if content is None else path.write_bytes(content)
    second = read(corpus)
    assert list(second) == [LINES[0], LINES[1], LINES[3]]
    assert second.report.kept == 3


def test_damaged_lists_of_dropped_rows_are_made_again(corpus: ParallelCorpusConfig) -> None:
    with Path(str(corpus.pairs)).open("a") as file:
        file.write("a b\tx y\n")
    wanted = [LINES[0], LINES[1], LINES[3]]
    first = read(corpus)
    assert list(first) == wanted
    [drops] = cache_folder().glob("checked/*/drops-0")
    drops.write_bytes(bytes(4))  # another row
    assert list(read(corpus)) == wanted
    drops.write_bytes(bytes(4))
    with pytest.raises(StorageError, match="drops-0: missing or damaged"):
        list(first)


def test_damaged_lists_of_dropped_rows_on_a_store_are_made_again_by_thorough_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QKV_CACHE", f"memory://{tmp_path.name}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "train.tsv").write_text("a b\tx y\n" * 2 + "c\tz\n")
    corpus = ParallelCorpusConfig(pairs=str(tmp_path / "train.tsv"))
    list(read(corpus))
    [drops] = urls.list_files(f"memory://{tmp_path.name}/checked/*/drops-0")
    urls.write_object(drops, bytes(4))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    with pytest.raises(StorageError, match="drops-0: missing or damaged; run qkv prepare"):
        list(read(corpus))
    check_corpus(corpus, CheckConfig(), None, set(), Work(), thorough=True)
    assert list(read(corpus)) == [("a b", "x y"), ("c", "z")]


def test_tokens_are_those_of_the_text_and_are_kept(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, too_long, *_ = tokenise_corpus(read(corpus), tokenizers, PairFormat(20), Work())
    assert texts(pairs, tokenizers) == [LINES[0], LINES[1], LINES[3]]
    assert too_long == 0
    monkeypatch.setattr(tokenised_pairs, "encode_pairs", lambda *_: pytest.fail("tokenised again"))
    again = tokenise_corpus(read(corpus), tokenizers, PairFormat(20), Work()).pairs
    assert texts(again, tokenizers) == texts(pairs, tokenizers)


@pytest.mark.parametrize(("most", "kept"), [(8, 3), (7, 2), (5, 2), (4, 2), (3, 1), (1, 0)])
def test_pairs_too_long_are_counted_with_the_end_of_the_target(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, most: int, kept: int
) -> None:
    for _ in range(2):  # the count is remembered too
        pairs, too_long, *_ = tokenise_corpus(read(corpus), tokenizers, PairFormat(most), Work())
        assert (len(pairs), too_long) == (kept, 3 - kept)


@pytest.mark.parametrize("source_format", [SourceFormat(eos=True), SourceFormat(bos=True, eos=True), SourceFormat()])
def test_sources_have_their_frame_whatever_was_made_before(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, source_format: SourceFormat
) -> None:
    plain = tokenise_corpus(read(corpus), tokenizers, PairFormat(20), Work()).pairs
    pairs = tokenise_corpus(read(corpus), tokenizers, PairFormat(20, source_format), Work()).pairs
    before, after = [tokenizers.source.bos] * source_format.bos, [tokenizers.source.eos] * source_format.eos
    for number in range(3):
        assert pairs.source[number].tolist() == [*before, *plain.source[number].tolist(), *after]
        assert pairs.target[number].tolist() == plain.target[number].tolist()


def test_another_tokenizer_has_its_own_tokens(corpus: ParallelCorpusConfig, tokenizers: Tokenizers) -> None:
    other = train_tokenizer(TokenizerConfig(kind="characters"), ["abcd xyz"])
    tokenise_corpus(read(corpus), tokenizers, PairFormat(20), Work())
    pairs = tokenise_corpus(read(corpus), Tokenizers(other, other), PairFormat(20), Work()).pairs
    assert texts(pairs, Tokenizers(other, other)) == [LINES[0], LINES[1], LINES[3]]
    assert len(cached("shards")) == 2


@pytest.mark.parametrize("name", ["shards/*/source.ids", "shards/*/target.ends", "shards/*/meta.json", "tokens/*/index.json"])
@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", None])
def test_damaged_tokens_are_made_again(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, name: str, content: bytes | None
) -> None:
    tokenise_corpus(read(corpus), tokenizers, PairFormat(7), Work())
    [path] = cache_folder().glob(name)
    path.unlink() if content is None else path.write_bytes(content)
    pairs, too_long, *_ = tokenise_corpus(read(corpus), tokenizers, PairFormat(7), Work())
    assert texts(pairs, tokenizers) == [LINES[0], LINES[1]]
    assert too_long == 1
