"""gensim and fastText load our files and find the same neighbours; we load theirs."""

from pathlib import Path

import numpy as np
import pytest
from word_toys import WORDS, with_subwords

from qkv.vectors.formats import read_vectors, write_vectors
from qkv.vectors.word_vectors import WordVectors


def same(found: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert [word for word, _ in found] == [word for word, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], abs=1e-5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves files without a header open
@pytest.mark.parametrize("kind", ["word2vec", "word2vec-binary", "glove"])
def test_gensim_reads_ours(kind: str, vectors: WordVectors, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    write_vectors(vectors, tmp_path / "v", kind)
    theirs = models.KeyedVectors.load_word2vec_format(
        str(tmp_path / "v"), binary=kind == "word2vec-binary", no_header=kind == "glove"
    )
    assert np.array_equal(theirs["Straße"], vectors["Straße"])
    same(vectors.most_similar("king"), theirs.most_similar("king"))
    same(vectors.most_similar(["king", "woman"], ["man"]), theirs.most_similar(["king", "woman"], ["man"]))
    assert vectors.similarity("king", "水") == pytest.approx(theirs.similarity("king", "水"), abs=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_we_read_gensims(binary: bool, vectors: WordVectors, tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    theirs = models.KeyedVectors(5)
    theirs.add_vectors(WORDS, vectors.matrix)
    theirs.save_word2vec_format(str(tmp_path / "v"), binary=binary)
    assert np.array_equal(read_vectors(tmp_path / "v").matrix, vectors.matrix)


def test_gensim_reads_our_fasttext(tmp_path: Path) -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    vectors = with_subwords()
    write_vectors(vectors, tmp_path / "v.bin", "fasttext")
    theirs = fasttext.load_facebook_vectors(str(tmp_path / "v.bin"))
    np.testing.assert_allclose(theirs["prince"], vectors["prince"], rtol=1e-5)
    ours, others = ([near for near in v.most_similar("prince", topn=9) if near[0] != "</s>"] for v in (vectors, theirs))
    same(ours, others)  # only gensim gives the end of a line n-grams


@pytest.mark.parametrize("kind", ["plain", "subwords"])
def test_fasttext_reads_ours(kind: str, vectors: WordVectors, tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    vectors = vectors if kind == "plain" else with_subwords(1, 4)
    write_vectors(vectors, tmp_path / "v.bin", "fasttext")
    theirs = fasttext.FastText._FastText(str(tmp_path / "v.bin"))  # load_model prints a warning of its own
    assert theirs.get_words(on_unicode_error="strict") == vectors.words
    for word in [*WORDS, *(["prince", "Straßen", "水水"] if kind == "subwords" else [])]:
        np.testing.assert_allclose(theirs.get_word_vector(word), vectors[word], rtol=1e-4, atol=1e-6)
        same(vectors.most_similar(word), [(other, value) for value, other in theirs.get_nearest_neighbors(word) if other])


def test_we_read_fasttexts(tmp_path: Path) -> None:
    fasttext = pytest.importorskip("fasttext")
    (tmp_path / "t.txt").write_text("the king and the queen ate an apple and a pear über straßen\n" * 30)
    theirs = fasttext.train_unsupervised(str(tmp_path / "t.txt"), dim=8, minCount=1, bucket=100, thread=1, epoch=2, verbose=0)
    theirs.save_model(str(tmp_path / "v.bin"))
    vectors = read_vectors(tmp_path / "v.bin")
    assert vectors.words == theirs.get_words() and vectors.output is not None and vectors.counts.sum() == 420
    for word in [*vectors.words, "kingdom", "öl"]:
        np.testing.assert_allclose(vectors[word], theirs.get_word_vector(word), rtol=1e-4, atol=1e-6)
    write_vectors(vectors, tmp_path / "again.bin", "fasttext")
    again = fasttext.FastText._FastText(str(tmp_path / "again.bin"))
    np.testing.assert_allclose(again.get_word_vector("kingdom"), vectors["kingdom"], rtol=1e-4, atol=1e-6)
