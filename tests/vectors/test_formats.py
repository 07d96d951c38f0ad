"""File formats of other tools: written vectors are read back, and damaged files are refused with one line."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from word_toys import WORDS, with_subwords

from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.vectors.fasttext_format import MAGIC, FastTextArguments, FastTextModel, read_fasttext, write_fasttext
from qkv.vectors.formats import WRITERS, detect_format, read_vectors, write_vectors
from qkv.vectors.word_vectors import WordVectors


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_is_known_and_read_again(kind: str, vectors: WordVectors, tmp_path: Path) -> None:
    write_vectors(vectors, tmp_path / "v", kind)
    assert detect_format(tmp_path / "v") == kind
    for again in (read_vectors(tmp_path / "v"), read_vectors(tmp_path / "v", kind)):
        assert again.words == WORDS
        assert np.array_equal(again.matrix, vectors.matrix)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_names_tell_what_to_write(vectors: WordVectors, tmp_path: Path) -> None:
    for name, kind in {"v": "qkv", "v.vec": "word2vec", "v.txt": "word2vec", "v.bin": "word2vec-binary"}.items():
        write_vectors(vectors, tmp_path / name)
        assert detect_format(tmp_path / name) == kind
    write_vectors(with_subwords(), tmp_path / "sub.bin")
    assert detect_format(tmp_path / "sub.bin") == "fasttext"
    with pytest.raises(ConfigError, match="implies no format"):
        write_vectors(vectors, tmp_path / "v.model")
    with pytest.raises(ConfigError, match="'pickle' is not known"):
        read_vectors(tmp_path / "v", "pickle")


def test_subwords_and_counts_survive_fasttext(tmp_path: Path) -> None:
    vectors = with_subwords()
    write_vectors(vectors, tmp_path / "v.bin", "fasttext")
    again = read_vectors(tmp_path / "v.bin")
    assert np.array_equal(again.matrix, vectors.matrix)
    assert np.array_equal(again["prince"], vectors["prince"])
    assert again.most_similar("prince") == vectors.most_similar("prince")


def test_a_sum_of_matrices_goes_to_fasttext_as_it_is(vectors: WordVectors, tmp_path: Path) -> None:
    both = WordVectors.combine(WORDS, vectors.matrix, vectors.output, "sum", subwords=with_subwords().subwords)
    write_vectors(both, tmp_path / "v.bin", "fasttext")
    assert np.array_equal(read_vectors(tmp_path / "v.bin").matrix, both.matrix)


def test_layout_of_a_classifier_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model = FastTextModel(
        FastTextArguments(width=4, model=3, loss=3, word_ngrams=2, buckets=10),
        ["a", "b"],
        np.array([5, 4, 3, 2]),
        rng.normal(size=(12, 4)).astype(np.float32),
        rng.normal(size=(2, 4)).astype(np.float32),
        ["__label__x", "__label__y"],
        9,
    )
    write_fasttext(model, tmp_path / "m.bin")
    again = read_fasttext(tmp_path / "m.bin")
    for name in ("arguments", "words", "labels", "tokens"):
        assert getattr(again, name) == getattr(model, name)
    for name in ("counts", "input", "output"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
    assert read_vectors(tmp_path / "m.bin").words == ["a", "b"]


def test_words_with_spaces_are_read_but_not_written(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2 3\n. . . 4 5 6\nat a@b.c 7 8 9\n\n")
    vectors = read_vectors(tmp_path / "v.txt")
    assert vectors.words == ["the", ". . .", "at a@b.c"]
    assert vectors.matrix.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    with pytest.warns(QkvWarning, match="2 words with spaces"):
        write_vectors(vectors, tmp_path / "w.bin")
    assert read_vectors(tmp_path / "w.bin").words == ["the"]


def test_files_of_the_original_tools(tmp_path: Path) -> None:
    """word2vec's own program ends lines with a space; gensim puts no newline after a binary vector."""
    (tmp_path / "c.txt").write_text("2 2\nking 1.5 -2e-3 \nqueen 0 1 \n")
    assert read_vectors(tmp_path / "c.txt").matrix.tolist() == [[1.5, np.float32(-2e-3)], [0, 1]]
    (tmp_path / "g.bin").write_bytes(b"2 1\nking " + struct.pack("<f", 1.5) + b"queen " + struct.pack("<f", -2))
    assert read_vectors(tmp_path / "g.bin").matrix.tolist() == [[1.5], [-2]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a 1 2\nb 1\n", "line 2: a word and 2 numbers were expected, got 1"),
        (b"a 1 2\nb 1 2 3\nc 1\n", "line 2: a word and 2 numbers were expected, got 3"),
        (b"a 1 2\nb 1 x\n", "line 2: a word and 2 numbers were expected, got something else"),
        (b"a\n", "line 1: a word and some numbers were expected, got 0"),
        (b"a 1 2\n\xff\xfe 1 2\n", "line 2: the word is not UTF-8"),
        (b"a 1 2\n 1 2\n", "line 2: begins with a space"),
        (b"a 1 nan\n", "line 1: a number is not finite"),
        (b"a 1 2\nb 1 1e99\n", "line 2: a number is not finite"),
        (b"", "0 words, at least one was expected"),
        (b"3 2\na 1 2\nb 1 2\n", "2 words, the header promises 3"),
        (b"1 2\na 1 2\nb 1 2\n", "2 words, the header promises 1"),
        (b"900 2\na 1 2\n", "its header promises 900 words, which take 4,500 bytes at least, and it has 12"),
        (b"1 1\na 1 2\n", "line 2: a word and 1 numbers were expected, got 2"),
        (b"1 3\na 1 2\n", "line 2: a word and 3 numbers were expected, got 2"),
        (b"2 1\na \0\0\0\0b \0\0", "byte 12: cut short: the vector of 'b' needs 4 bytes, 2 are left"),
        (b"2 1\na \0\0\0\0\xffb \0\0\0\0", "byte 10: word 2 is not UTF-8"),
        (b"1 1\na \0\0\0\0\n more", "byte 10: 6 bytes more than the header promises"),
        (b"1 1\na \0\0\xc0\x7f\n", "word 1 is empty or its numbers are not finite"),
        (b"9 9\na \0\0\0\0", "the header promises 9 words of 9 numbers"),
    ],
)
def test_damaged_text_and_binary(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_vectors(path)
    assert complaint in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [0x0A0A0A0A, 0x3D0A6162])
def test_binary_numbers_that_look_like_the_end_of_a_line(first: int, tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    matrix[0, 0] = np.array(first, np.uint32).view(np.float32)
    write_vectors(WordVectors(WORDS, matrix), tmp_path / "v.bin")
    assert detect_format(tmp_path / "v.bin") == "word2vec-binary"
    assert np.array_equal(read_vectors(tmp_path / "v.bin").matrix, matrix)


def test_a_header_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("a 1 2\n")
    for kind in ("word2vec", "word2vec-binary"):
        with pytest.raises(DataError, match="line 1: a header such as"):
            read_vectors(tmp_path / "v", kind)


def changed(place: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + value + data[place + len(value) :]


DICTIONARY = 8 + 12 * 4 + 8
FIRST_WORD = DICTIONARY + 12 + 16


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda data: data[:20], "byte 8: cut short: the arguments needs 56 bytes, 12 are left"),
        (lambda data: data[:-3], "cut short: the output matrix of 9 by 6 needs 216 bytes, 213 are left"),
        (lambda data: data + b"x", "1 bytes more than the model takes"),
        (lambda data: data[: FIRST_WORD + 2], "entry 1 of the dictionary was expected, but the file ends"),
        (changed(4, struct.pack("<i", 13)), "fastText's format 13"),
        (changed(8, struct.pack("<i", 7)), "matrices of shape"),
        (changed(DICTIONARY, struct.pack("<i", -4)), "a dictionary of -4 entries"),
        (changed(DICTIONARY + 20, struct.pack("<q", 3)), "a pruned, quantised model"),
        (changed(FIRST_WORD, b"\xff"), f"byte {FIRST_WORD}: entry 1 of the dictionary is not UTF-8"),
        (changed(FIRST_WORD + 5 + 8, b"\7"), "is of kind 7"),
    ],
)
def test_damaged_fasttext(damage: Callable[[bytes], bytes], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "v.bin"
    write_vectors(with_subwords(), path, "fasttext")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        read_vectors(path)
    assert complaint in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_quantised_and_other_files_are_no_fasttext(tmp_path: Path) -> None:
    model = FastTextModel(
        FastTextArguments(width=1), ["a"], np.array([1]), np.ones((1, 1), np.float32), np.ones((1, 1), np.float32)
    )
    write_fasttext(model, tmp_path / "v.bin")
    data = (tmp_path / "v.bin").read_bytes()
    matrix = FIRST_WORD + len(b"a\0") + 9
    (tmp_path / "q.ftz").write_bytes(data[:matrix] + b"\1" + data[matrix + 1 :])
    with pytest.raises(DataError, match="a quantised model"):
        read_vectors(tmp_path / "q.ftz")
    (tmp_path / "other").write_bytes(b"12345678")
    with pytest.raises(DataError, match=f"{MAGIC} was expected"):
        read_vectors(tmp_path / "other", "fasttext")
