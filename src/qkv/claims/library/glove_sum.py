"""The sum of GloVe's two matrices is better than either (Pennington et al. 2014, section 4.2).

GloVe trains a vector of each word as a word, and one as a context; its authors add them. By symmetry both should be equally
good, which is the control. The rival explanation is size: two lists of numbers say more than one. So a variant puts both side
by side instead of adding them.
"""

import numpy as np

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, texts
from qkv.claims.pictures import strip
from qkv.claims.probes import nearest_alike, train_words, word_classes
from qkv.claims.verdict import Higher, Same
from qkv.vectors.word_vectors import WordVectors


def analogies(vectors: WordVectors, pairs: list[tuple[str, str]]) -> float:
    """Return the share of man : woman = king : ? that is answered right, inputs excluded."""
    rows = np.array([[vectors.index[word] for word in pair] for pair in pairs if all(word in vectors.index for word in pair)])
    unit = vectors.matrix / vectors.norms[:, None]
    one, other = (grid.ravel() for grid in np.meshgrid(range(len(rows)), range(len(rows))))
    (man, woman), (king, queen) = rows[one[one != other]].T, rows[other[one != other]].T
    cosines = (unit[king] - unit[man] + unit[woman]) @ unit.T
    np.put_along_axis(cosines, np.stack([man, woman, king], 1), -np.inf, axis=1)
    return float((cosines.argmax(1) == queen).mean())


def measure(cell: Cell) -> Measured:
    """Train GloVe; return the neighbours' topics and the analogies of one way to use its matrices."""
    language = Language(cell.seed, nouns=60)
    documents = texts(language.documents(cell["documents"], cell.seed))
    vectors = train_words(cell, "glove", documents, width=30, window=5, epochs=cell["epochs"], x_max=20).vectors
    if cell["part"] == "both":
        matrix = np.hstack([vectors.part(side).matrix for side in ("input", "output")])
        vectors = WordVectors(vectors.words, matrix, counts=vectors.counts)
    else:
        vectors = vectors.part(cell["part"])
    topics = {word: topic for word, (_, topic) in word_classes(language).items()}
    known = [word for word in vectors.words if word in topics]
    return {"topic": nearest_alike(vectors, known, topics), "analogies": analogies(vectors, language.people)}


CLAIM = Claim(
    topic="words",
    statement="The sum of GloVe's two matrices is better than either of them.",
    source="Pennington, Socher and Manning 2014, GloVe, section 4.2",
    measured="The share of the ten words nearest to each word that have its topic (chance 10 %), and the share of "
    "analogies between 21 pairs of persons that are answered, for the vectors of words, those of contexts, and their sum, from "
    "one training on a small text.",
    prediction="A small boost, as the paper says: the sum is at least 1 point better than the vectors of words in both "
    "measures, and at least 1 point better than both matrices side by side.",
    explanation="GloVe describes each word twice, once as a speaker and once as a listener. Both descriptions start from "
    "other random numbers and so make other mistakes. Adding them lets mistakes cancel, as a mean of two measurements does; it "
    "also counts words as alike that often stand together.",
    formula="(w + w̃) · (v + ṽ) = w · v + w̃ · ṽ + w · ṽ + w̃ · v: the last two terms are co-occurrence itself",
    changes="Much text leaves little noise to cancel. The cross terms help where words of a topic occur together, as here, "
    "and may hurt where only words that replace each other should be alike.",
    variants={
        "vectors of words": {"part": "input"},
        "vectors of contexts": {"part": "output"},
        "sum": {"part": "sum"},
        "side by side": {"part": "both"},
    },
    sizes={"cpu": {"documents": 3000, "epochs": 50}, "quick": {"documents": 2000, "epochs": 25}},
    measure=measure,
    units={"topic": "neighbours of the same topic", "analogies": "analogies answered"},
    parts=(
        Higher("neighbours of the sum are better", "topic", "sum", "vectors of words", by=0.01),
        Higher("analogies of the sum are better", "analogies", "sum", "vectors of words", by=0.01),
        Higher("more numbers are not the reason", "topic", "sum", "side by side", by=0.01),
    ),
    controls=(
        Higher("GloVe learns topics", "topic", "vectors of words", than=0.1, by=0.2),
        Same("both matrices are equally good", "topic", "vectors of contexts", "vectors of words", within=0.03),
    ),
    picture=[strip("topic"), strip("analogies")],
)
