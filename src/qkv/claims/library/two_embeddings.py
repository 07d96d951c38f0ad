"""Why word2vec has two embeddings of each word (Goldberg and Levy 2014, word2vec Explained, footnote 2).

A word hardly ever stands in its own context: nobody writes "dog dog". With one embedding the score of that is v · v, which is
never negative, so the model must be wrong there. We train skip-gram with one matrix in both roles. It has half of the weights,
so that a third variant has one matrix of twice the width.
"""

import numpy as np

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, texts
from qkv.claims.pictures import strip
from qkv.claims.probes import nearest_alike, word_classes
from qkv.claims.training import write_documents
from qkv.claims.verdict import Higher, Lower
from qkv.vectors.corpus import open_corpus
from qkv.vectors.hogwild import train_hogwild
from qkv.vectors.word2vec import Word2VecConfig, Word2VecTrainer


def measure(cell: Cell) -> Measured:
    """Train; return how probable words are in their own context, and what kind of words are nearest."""
    language = Language(cell.seed)
    path = write_documents(cell, "text", texts(language.documents(cell["documents"], cell.seed)))
    settings = {"width": cell["width"], "window": 5, "epochs": cell["epochs"], "min_count": 5, "threads": 1, "seed": cell.seed}
    config = Word2VecConfig(**settings)
    trainer = Word2VecTrainer(open_corpus([path], config, True), config, "skipgram")
    if cell["one"]:
        trainer.arrays["outputs"] = trainer.arrays["inputs"]
    train_hogwild(trainer.task, trainer.arrays, 1, None, quiet=True)
    own = np.einsum("vd,vd->v", trainer.arrays["inputs"], trainer.arrays["outputs"])
    weights = sum(matrix.size for matrix in {id(matrix): matrix for matrix in trainer.arrays.values()}.values())
    vectors, classes = trainer.vectors(), word_classes(language)
    known = [word for word in vectors.words if word in classes]
    topics = {word: topic for word, (_, topic) in classes.items()}
    return {
        "itself": float((1 / (1 + np.exp(-own))).mean()),
        "kind": nearest_alike(vectors, known, classes),
        "topic": nearest_alike(vectors, known, topics),
        "weights": float(weights),
    }


CLAIM = Claim(
    topic="words",
    statement="Word2vec needs two embeddings of each word: with one, each word is expected beside itself.",
    source="Goldberg and Levy 2014, word2vec Explained, footnote 2; Mikolov et al. 2013, Distributed Representations, eq. 2",
    measured="The probability that skip-gram gives to a word in its own context, in a text where that hardly happens; and "
    "the share of the ten words nearest to a word that have its topic and its class (noun, verb or adjective).",
    prediction="With one embedding the probability is never below a half; with two it is at least 0.2 lower. With two, the "
    "share of neighbours of the same topic and class is at least 5 points higher, also than with one embedding of twice the "
    "width.",
    explanation="The model guesses which words stand together, by multiplying two lists of numbers. A list multiplied by "
    "itself always gives a large number, so with one list for each word the model believes that every word loves its own "
    "company. With one list for the word and another for the company it keeps, both can be right.",
    formula="one: p(w beside w) = σ(v · v) ≥ 1/2;   two: p(w beside w) = σ(v · v′), any value",
    changes="One pair in thousands is a word with itself, so that the mistake may cost little elsewhere: the part on "
    "neighbours tells. With one embedding words are alike that stand together, with two those that replace each other; tasks "
    "about topics may like the first. That the worse neighbours come from the expectation is not shown: one matrix also gets the "
    "updates of both roles.",
    variants={
        "two embeddings": {"one": False, "width": 48},
        "one embedding": {"one": True, "width": 48},
        "one embedding, twice the width": {"one": True, "width": 96},
    },
    sizes={"cpu": {"documents": 6000, "epochs": 8}, "quick": {"documents": 3000, "epochs": 5}},
    measure=measure,
    units={
        "itself": "probability of a word beside itself",
        "kind": "neighbours of the same topic and class",
        "topic": "neighbours of the same topic",
        "weights": "weights",
    },
    parts=(
        Lower("with two, a word is less expected beside itself", "itself", "two embeddings", "one embedding", by=0.2),
        Higher("with two, neighbours are better", "kind", "two embeddings", "one embedding", by=0.05),
        Higher("more width does not help one", "kind", "two embeddings", "one embedding, twice the width", by=0.05),
    ),
    controls=(
        Higher("one embedding learns topics", "topic", "one embedding", than=0.1, by=0.2),
        Higher("two embeddings learn topics", "topic", "two embeddings", than=0.1, by=0.2),
    ),
    picture=[strip("itself", marks={"undecided": 0.5}, span=(0, 1)), strip("kind", span=(0, 1))],
)
