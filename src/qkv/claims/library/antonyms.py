"""Words close in co-occurrence are close in vectors, and so are antonyms (folklore; Mohammad et al. 2013; Mrkšić et al. 2016).

Every adjective of the artificial language becomes four words: two opposites, as hot and cold, with a synonym each. Opposites
have the same company, but for the adverb at the end of a sentence, which fits one of them. In one variant a sentence has such an
adverb seldom, as in natural text; in the other it has three of them always, to show that the measure would see a difference.
"""

import numpy as np

from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, Sentence
from qkv.claims.pictures import strip
from qkv.claims.probes import train_words
from qkv.claims.verdict import Higher, Same
from qkv.vectors.word_vectors import WordVectors

SIDES = (("mi", "su"), ("ne", "to"))  # what the two words of either side begin with
WINDOW = 5


def with_opposites(sentence: Sentence, language: Language, adverbs: float, count: int, rng: np.random.Generator) -> str:
    """Put the adjectives of a sentence on one side, and let its adverbs fit that side."""
    side, half = int(rng.integers(2)), len(language.adverbs) // 2
    words = [
        SIDES[side][rng.integers(2)] + word if tag == "adjective" else word
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if tag != "adverb"
    ]
    fitting = language.adverbs[side * half : (side + 1) * half]
    chosen = [fitting[i] for i in rng.integers(0, half, count)] if rng.random() < adverbs else []
    for adverb in chosen:  # anywhere, so that they are near
        words.insert(int(rng.integers(0, len(words))), adverb)
    return " ".join(words)


def company(lines: list[str], vectors: WordVectors) -> np.ndarray:
    """Return the rows of positive pointwise mutual information of all words with those within the window. -> (V, V)."""
    size = len(vectors.words)
    counts = np.zeros((size, size))
    for line in lines:
        ids = np.array([vectors.index[word] for word in line.split() if word in vectors.index], dtype=int)
        for distance in range(1, WINDOW + 1):
            np.add.at(counts, (ids[:-distance], ids[distance:]), 1)
    counts += counts.T
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    return np.log(np.maximum(counts, 1e-12) / np.maximum(expected, 1e-12)).clip(min=0)


def measure(cell: Cell) -> Measured:
    """Train skip-gram; return mean cosines of synonyms, opposites and other adjectives of a topic, and ranks in company."""
    language, rng = Language(cell.seed), rng_at(cell.seed, "sides")
    shape = language, cell["adverbs"], cell["count"], rng
    documents = [[with_opposites(one, *shape) for one in some] for some in language.documents(cell["documents"], cell.seed)]
    vectors = train_words(cell, "skipgram", documents, window=WINDOW, epochs=cell["epochs"]).vectors
    unit = vectors.matrix / vectors.norms[:, None]
    plain, size = language.adjectives, language.sizes["adjective"]

    def cosine(pairs: list[tuple[str, str]]) -> float:
        return float(np.mean([vectors.similarity(a, b) for a, b in pairs if a in vectors.index and b in vectors.index]))

    (good, well), (bad, ill) = SIDES
    others = [(good + a, good + plain[i - i % size + (i + 3) % size]) for i, a in enumerate(plain)]
    figures: dict[str, float] = {
        "synonyms": cosine([(good + a, well + a) for a in plain] + [(bad + a, ill + a) for a in plain]),
        "opposites": cosine([(good + a, bad + a) for a in plain] + [(well + a, ill + a) for a in plain]),
        "others": cosine(others),
    }
    ppmi = company([line for document in documents[:2000] for line in document], vectors)
    ppmi /= np.maximum(np.linalg.norm(ppmi, axis=1, keepdims=True), 1e-9)
    above = np.triu_indices(len(unit), 1)
    ranks = [np.argsort(np.argsort((matrix @ matrix.T)[above])) for matrix in (unit, ppmi)]
    figures["company"] = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    return {**figures, "gap": figures["synonyms"] - figures["opposites"], "lift": figures["opposites"] - figures["others"]}


CLAIM = Claim(
    topic="words",
    statement="Words close in co-occurrence are close in vectors, antonyms too.",
    source="folklore; Mohammad et al. 2013, Computing Lexical Contrast; Mrkšić et al. 2016, Counter-fitting; Levy and "
    "Goldberg 2014",
    measured="Mean cosines of skip-gram vectors between synonyms, between opposites, and between other adjectives of a "
    "topic; and the rank correlation, over all pairs of words, with the cosines of their company (positive pointwise mutual "
    "information).",
    prediction="Where opposites share their company, they are at most 0.1 less alike than synonyms, and at least 0.1 more "
    "alike than other words of the topic. The rank correlation with co-occurrence is at least 0.3. Where opposites have company "
    "of their own, they are at least 0.1 less alike than synonyms.",
    explanation="A computer that knows words only by their company cannot tell hot from cold: both go with water, weather "
    "and soup. To it they are almost the same word. Only company that goes with one of them tells them apart.",
    formula="cos(hot, cold) ≈ 1 if p(c | hot) ≈ p(c | cold) for all words c in their contexts",
    changes="Text that tells opposites apart, dictionaries of opposites (counter-fitting), or a wider view than a window: "
    "language models see which continuation fits. That opposites share their company is put into this language, not found in it.",
    variants={
        "opposites share their company": {"adverbs": 0.1, "count": 1},
        "opposites have company of their own": {"adverbs": 1.0, "count": 3},
    },
    sizes={"cpu": {"documents": 10000, "epochs": 5}, "quick": {"documents": 5000, "epochs": 3}},
    measure=measure,
    units={
        "synonyms": "cosine of synonyms",
        "opposites": "cosine of opposites",
        "others": "cosine of other adjectives of the topic",
        "gap": "synonyms above opposites",
        "lift": "opposites above others",
        "company": "rank correlation with co-occurrence",
    },
    parts=(
        Same("opposites are as alike as synonyms", "gap", "opposites share their company", than=0.0, within=0.1),
        Higher("and more alike than others", "lift", "opposites share their company", than=0.0, by=0.1),
        Higher("vectors follow co-occurrence", "company", "opposites share their company", than=0.0, by=0.3),
    ),
    controls=(Higher("the measure sees company of their own", "gap", "opposites have company of their own", than=0.0, by=0.1),),
    picture=[strip("synonyms", "opposites", "others", span=(0, 1))],
)
