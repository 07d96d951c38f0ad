"""From files to tokens: each step is done once, remembered by content, and done again where what is remembered is damaged."""

from pathlib import Path

import pytest

from qkv.data import corpora
from qkv.data.corpora import CheckedCorpus, Tokenizers, check_corpus, tokenise_corpus
from qkv.data.tokens import TokenPairs
from qkv.data.trees import SourceFormat
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
    return check_corpus(corpus, rules or CheckConfig(), None, set(held_out), quiet=True)


def texts(pairs: TokenPairs, tokenizers: Tokenizers) -> list[tuple[str, str]]:
    decode = tokenizers.source.decode
    return [(decode(pairs.source[i].tolist()), decode(pairs.target[i].tolist())) for i in range(len(pairs))]


def cached(kind: str) -> list[Path]:
    return sorted((corpora.cache_folder() / kind).iterdir())


def test_checked_pairs_and_what_was_dropped(corpus: ParallelCorpusConfig) -> None:
    found = read(corpus)
    assert list(found) == [LINES[0], LINES[1], LINES[3]]
    assert (found.report.read, found.report.kept) == (4, 3)


def test_the_second_time_nothing_is_read(corpus: ParallelCorpusConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(corpus)
    monkeypatch.setattr(corpora, "read_pairs", lambda *_: pytest.fail("the corpus was read again"))
    second = read(corpus.model_copy(update={"weight": 3.0}))  # a weight does not change what is in it
    assert list(second) == list(first)
    assert second.report.as_dict() == first.report.as_dict()


def test_other_content_or_rules_or_held_out_texts_are_read_anew(corpus: ParallelCorpusConfig) -> None:
    keys = [read(corpus).key, read(corpus, CheckConfig(identical="keep")).key, read(corpus, held_out=frozenset({7})).key]
    Path(str(corpus.pairs)).write_text("a\tb\n")
    again = read(corpus)
    assert list(again) == [("a", "b")]
    assert len({*keys, again.key}) == 4


@pytest.mark.parametrize("name", ["report.json", "pairs.tsv"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"a b\tx y\n", None])
def test_damaged_checked_text_is_made_again(corpus: ParallelCorpusConfig, name: str, content: bytes | None) -> None:
    first = read(corpus)
    path = first.pairs.parent / name
    path.unlink() if content is None else path.write_bytes(content)
    second = read(corpus)
    assert list(second) == [LINES[0], LINES[1], LINES[3]]
    assert second.report.kept == 3


def test_tokens_are_those_of_the_text_and_are_kept(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, too_long = tokenise_corpus(read(corpus), tokenizers, max_tokens=20, quiet=True)
    assert texts(pairs, tokenizers) == [LINES[0], LINES[1], LINES[3]]
    assert too_long == 0
    monkeypatch.setattr(corpora, "_encode", lambda *_: pytest.fail("tokenised again"))
    again, _ = tokenise_corpus(read(corpus), tokenizers, max_tokens=20, quiet=True)
    assert texts(again, tokenizers) == texts(pairs, tokenizers)


@pytest.mark.parametrize(("most", "kept"), [(8, 3), (7, 2), (5, 2), (4, 2), (3, 1), (1, 0)])
def test_pairs_too_long_are_counted_with_the_end_of_the_target(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, most: int, kept: int
) -> None:
    for _ in range(2):  # the count is remembered too
        pairs, too_long = tokenise_corpus(read(corpus), tokenizers, max_tokens=most, quiet=True)
        assert (len(pairs), too_long) == (kept, 3 - kept)


@pytest.mark.parametrize("source_format", [SourceFormat(eos=True), SourceFormat(bos=True, eos=True), SourceFormat()])
def test_sources_have_their_frame_whatever_was_made_before(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, source_format: SourceFormat
) -> None:
    plain, _ = tokenise_corpus(read(corpus), tokenizers, max_tokens=20, quiet=True)
    pairs, _ = tokenise_corpus(read(corpus), tokenizers, max_tokens=20, quiet=True, source_format=source_format)
    before, after = [tokenizers.source.bos] * source_format.bos, [tokenizers.source.eos] * source_format.eos
    for number in range(3):
        assert pairs.source[number].tolist() == [*before, *plain.source[number].tolist(), *after]
        assert pairs.target[number].tolist() == plain.target[number].tolist()


def test_another_tokenizer_has_its_own_tokens(corpus: ParallelCorpusConfig, tokenizers: Tokenizers) -> None:
    other = train_tokenizer(TokenizerConfig(kind="characters"), ["abcd xyz"])
    tokenise_corpus(read(corpus), tokenizers, max_tokens=20, quiet=True)
    pairs, _ = tokenise_corpus(read(corpus), Tokenizers(other, other), max_tokens=20, quiet=True)
    assert texts(pairs, Tokenizers(other, other)) == [LINES[0], LINES[1], LINES[3]]
    assert len(cached("tokens")) == 2


@pytest.mark.parametrize("name", ["source.ids", "target.ends", "meta.json"])
@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", None])
def test_damaged_tokens_are_made_again(
    corpus: ParallelCorpusConfig, tokenizers: Tokenizers, name: str, content: bytes | None
) -> None:
    tokenise_corpus(read(corpus), tokenizers, max_tokens=7, quiet=True)
    [folder] = cached("tokens")
    path = folder / name
    path.unlink() if content is None else path.write_bytes(content)
    pairs, too_long = tokenise_corpus(read(corpus), tokenizers, max_tokens=7, quiet=True)
    assert texts(pairs, tokenizers) == [LINES[0], LINES[1]]
    assert too_long == 1
