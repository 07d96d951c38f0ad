"""Word vectors: lookups of gensim's, saved atomically, memory-mapped when loaded."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from word_toys import WORDS, with_subwords

from qkv.base.errors import ConfigError, DataError
from qkv.vectors import search
from qkv.vectors.formats import read_vectors
from qkv.vectors.subwords import Subwords
from qkv.vectors.word_vectors import EPSILON, WordVectors


def hashed(text: str) -> int:
    """FNV-1a with each byte taken as a signed number, as fastText's code has it."""
    code = 2166136261
    for byte in text.encode():
        code = ((code ^ ((byte - 256) % 2**32 if byte > 127 else byte)) * 16777619) % 2**32
    return code


def spelled(word: str, min_n: int, max_n: int) -> list[str]:
    text = f"<{word}>"
    spans = [(i, i + n) for i in range(len(text)) for n in range(min_n, max_n + 1) if i + n <= len(text)]
    return [text[i:j] for i, j in spans if text[i:j] not in ("<", ">")]


def test_words_and_rows(vectors: WordVectors) -> None:
    assert len(vectors) == 8 and vectors.width == 5
    assert "king" in vectors and "prince" not in vectors and 7 not in vectors
    assert vectors["pear"].tolist() == vectors.matrix[7].tolist()
    assert vectors[["pear", "king"]].tolist() == vectors.matrix[[7, 0]].tolist()
    assert vectors.index["水"] == 5
    with pytest.raises(KeyError, match="'prince' is not in the vocabulary"):
        vectors["prince"]


def test_a_word_that_is_there_twice_is_the_first() -> None:
    assert WordVectors(["a", "b", "a"], np.eye(3)).index == {"a": 0, "b": 1}


def test_neighbours_are_those_of_brute_force(vectors: WordVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_SCORES", 3)  # several blocks, the last one not full
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    query = unit[0] - unit[2] + unit[3]
    cosines = unit @ (query / np.linalg.norm(query))
    expected = [WORDS[i] for i in np.argsort(-cosines) if i not in (0, 2, 3)]
    found = vectors.most_similar(positive=["king", "woman"], negative=["man"], topn=4)
    assert [word for word, _ in found] == expected[:4]
    assert found[0][1] == pytest.approx(cosines[WORDS.index(found[0][0])], abs=1e-6)
    assert [word for word, _ in vectors.most_similar("king", topn=100)] == [WORDS[i] for i in np.argsort(-unit @ unit[0])][1:]
    assert vectors.similarity("king", "man") == pytest.approx(float(unit[0] @ unit[2]), abs=1e-6)


def test_3cosmul_is_the_papers_formula(vectors: WordVectors) -> None:
    similar = (1 + np.array([[vectors.similarity(a, b) for b in WORDS] for a in WORDS])) / 2
    scores = similar[1] * similar[2] / (similar[0] + EPSILON)
    order = [i for i in np.argsort(-scores) if i > 2]
    found = vectors.most_similar_cosmul(["queen", "man"], "king", topn=3)
    assert [word for word, _ in found] == [WORDS[i] for i in order[:3]]
    assert [value for _, value in found] == pytest.approx(scores[order[:3]], abs=1e-5)


def test_a_query_vector_excludes_no_word(vectors: WordVectors) -> None:
    assert vectors.most_similar(3 * vectors["pear"], topn=1) == [("pear", pytest.approx(1))]
    assert {word for word, _ in vectors.most_similar(vectors["pear"], topn=9, limit=2)} == {"king", "queen"}
    with pytest.raises(ConfigError, match="these are 5 wide"):
        vectors.most_similar(np.ones(4))
    with pytest.raises(ConfigError, match="at least one word"):
        vectors.most_similar()


def test_zeros_are_like_nothing() -> None:
    vectors = WordVectors(["a", "b", "zero"], np.array([[1, 0], [1, 1], [0, 0]]))
    assert dict(vectors.most_similar("a"))["zero"] == 0
    assert vectors.similarity("zero", "zero") == 0


@pytest.mark.parametrize(("min_n", "max_n"), [(1, 3), (3, 6), (2, 2)])
def test_ngrams_and_their_buckets(min_n: int, max_n: int) -> None:
    subwords = Subwords(np.zeros((0, 2)), np.zeros((1000, 2)), min_n, max_n)
    ids, starts = subwords.ngrams(["</s>", *WORDS])
    assert starts[1] == 0
    for i, word in enumerate(WORDS, 1):
        assert ids[starts[i] : starts[i + 1]].tolist() == [hashed(g) % 1000 for g in spelled(word, min_n, max_n)], word


def test_unseen_words_have_the_mean_of_their_ngrams() -> None:
    vectors = with_subwords()
    rows = [hashed(gram) % 50 for gram in spelled("prince", 2, 4)]
    assert "prince" in vectors and "prince" not in vectors.index
    np.testing.assert_allclose(vectors["prince"], vectors.subwords.bucket_rows[rows].mean(axis=0), rtol=1e-5)
    rows = [hashed(gram) % 50 for gram in spelled("水", 2, 4)]
    own = vectors.subwords.word_rows[vectors.index["水"]]
    np.testing.assert_allclose(vectors["水"], (own + vectors.subwords.bucket_rows[rows].sum(axis=0)) / (1 + len(rows)), rtol=1e-5)
    assert "" not in with_subwords(3, 6) and len(vectors.most_similar("prince", topn=3)) == 3


@pytest.mark.parametrize("kind", ["plain", "subwords"])
def test_saved_and_opened_again(kind: str, vectors: WordVectors, tmp_path: Path) -> None:
    vectors = vectors if kind == "plain" else with_subwords()
    vectors.save(tmp_path / "v")
    vectors.save(tmp_path / "v")  # over an older one
    assert read_vectors(tmp_path / "v" / "vectors.safetensors").words == vectors.words
    again = WordVectors.load(tmp_path / "v")
    assert again.words == vectors.words
    assert isinstance(again.matrix.base, np.memmap)
    for name in ("matrix", "output", "counts"):
        assert np.array_equal(getattr(again, name), getattr(vectors, name)), name
    assert again.most_similar("king") == vectors.most_similar("king")
    assert ("prince" in again) == (kind == "subwords")
    assert np.array_equal(load_file(tmp_path / "v" / "vectors.safetensors")["matrix"], vectors.matrix)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_both_matrices_of_training_are_kept(vectors: WordVectors, tmp_path: Path) -> None:
    first, second = vectors.matrix, vectors.output
    WordVectors.combine(WORDS, first, second, "sum").save(tmp_path / "v")
    again = WordVectors.load(tmp_path / "v")
    assert np.array_equal(again.matrix, first + second)
    parts = {"input": first, "output": second, "sum": first + second, "mean": (first + second) / 2}
    for name, expected in parts.items():
        assert np.array_equal(again.part(name).matrix, expected), name
        assert np.array_equal(vectors.part(name).matrix, expected), name
    with pytest.raises(ConfigError, match="have no output matrix"):
        again.part("sum").part("output")


def test_unseen_words_are_like_words_and_nothing_else() -> None:
    vectors = with_subwords()
    both = WordVectors.combine(vectors.words, vectors.matrix, vectors.matrix[::-1], "sum", subwords=vectors.subwords)
    assert "prince" not in both and both.similarity("king", "king") == pytest.approx(1)
    assert np.array_equal(both.part("input")["prince"], vectors["prince"])


def test_a_folder_of_something_else_is_not_replaced(vectors: WordVectors, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds no vectors"):
        vectors.save(tmp_path)
    with pytest.raises(DataError, match="holds no vectors"):
        WordVectors.load(tmp_path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder, data: (folder / "words.txt").write_text("king\n"), "1 words in words.txt need a matrix"),
        (lambda folder, data: (folder / "vectors.safetensors").write_bytes(data[:-1]), "cut short"),
        (lambda folder, data: (folder / "vectors.safetensors").write_bytes(b"\xff" * 90), "is not a safetensors file"),
        (lambda folder, data: (folder / "vectors.safetensors").write_bytes(data.replace(b'"F32"', b'"F99"')), "dtype F99"),
        (lambda folder, data: (folder / "vectors.safetensors").write_bytes(data.replace(b"[8, 5]", b"[8, 6]")), "160 bytes for"),
    ],
)
def test_damaged_folders(damage, complaint: str, vectors: WordVectors, tmp_path: Path) -> None:
    vectors.save(tmp_path / "v")
    damage(tmp_path / "v", (tmp_path / "v" / "vectors.safetensors").read_bytes())
    with pytest.raises(DataError, match=complaint) as caught:
        WordVectors.load(tmp_path / "v")
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_words_that_no_line_can_hold(vectors: WordVectors, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a line of its own"):
        WordVectors(["a\nb"], np.ones((1, 2))).save(tmp_path / "v")
    with pytest.raises(DataError, match="1 words do not fit"):
        WordVectors(["a"], np.ones((2, 2)))
    assert not [*tmp_path.iterdir()]
