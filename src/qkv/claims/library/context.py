"""A word's vector changes with its context in ELMo and BERT, and not in GloVe (Peters et al. 2018, section 5.3).

Some nouns of the artificial language have two senses, as bank has. We ask whether the vector of such a noun, in a sentence, tells
its sense. Any network that mixes words has vectors that change with the context, an untrained one too: so that is the rival, a
BERT with its initial weights. The mean of GloVe over the sentence shows how much the words around tell.
"""

import numpy as np

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.language import Language, Sentence, texts
from qkv.claims.pictures import Picture, stack, strip
from qkv.claims.probes import sense_accuracy, train_words, word_states
from qkv.claims.training import ENCODER, train_text
from qkv.claims.verdict import Always, Higher, Same

ELMO = {
    "tokenizer": {"kind": "words"}, "data.length": 64, "model.width": 64, "model.lstm_width": 96, "model.highway_layers": 1,
    "model.filters": [[1, 16], [2, 16], [3, 32]], "model.max_characters": 16, "model.dropout": 0.0, "model.output_words": 8000,
    "training.learning_rate": 0.004, "training.batch_tokens": 1024,
}  # fmt: skip
UNTRAINED = {"training.learning_rate": 1e-12}


def states(cell: Cell, language: Language, sentences: list[Sentence]) -> list[np.ndarray]:
    """Train a model; return its vectors of the words of each sentence."""
    found = texts(language.documents(cell["documents"], cell.seed))
    if cell["model"] == "glove":
        vectors = train_words(cell, "glove", found, width=64, window=5, epochs=30, x_max=10).vectors
        zero = np.zeros(64, np.float32)
        found_words = [np.stack([vectors[word] if word in vectors.index else zero for word in one.words]) for one in sentences]
        return [np.tile(some.mean(0), (len(some), 1)) if cell["mean"] else some for some in found_words]
    recipe, settings = ("elmo-mini", ELMO) if cell["model"] == "elmo" else ("bert-mini", ENCODER)
    more = {} if cell["trained"] else UNTRAINED
    steps = cell[f"{cell['model']} steps"] if cell["trained"] else 1
    return word_states(train_text(cell, recipe, {**settings, **more}, found[100:], found[:100], steps=steps), sentences)


def measure(cell: Cell) -> Measured:
    """Return how much the vectors of ambiguous nouns change between sentences, and how often they tell the sense."""
    language = Language(cell.seed)
    sentences = language.sentences(cell["sentences"], 1000 + cell.seed)
    at = [(number, position, topic) for number, one in enumerate(sentences) for position, topic in one.senses]
    words = [sentences[number].words[position] for number, position, _ in at]
    found = states(cell, language, sentences)
    vectors = [found[number][position] for number, position, _ in at]
    by_word: dict[str, list[np.ndarray]] = {}
    for word, vector in zip(words, vectors, strict=True):
        by_word.setdefault(word, []).append(vector)
    pairs = [(some[0], other) for some in by_word.values() for other in some[1:] if np.any(some[0])]
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs]
    return {"senses": sense_accuracy(vectors, words, [topic for *_, topic in at]), "change": 1 - float(np.mean(cosines))}


def picture(result: Result) -> Picture:
    """Draw the accuracy for senses, and how much vectors change."""
    return stack(strip(result, "senses", marks={"chance": 0.5}, span=(0.4, 1)), strip(result, "change"))


CLAIM = Claim(
    topic="words",
    statement="A word's vector changes with its context in ELMo and BERT, and not in GloVe.",
    source="Peters et al. 2018, Deep Contextualized Word Representations, section 5.3; Ethayarajh 2019",
    measured="For nouns with two senses, in sentences by themselves: the cosine distance between vectors of the same word "
    "in two sentences, and how often a vector is nearer to the mean of its own sense than to that of the other (chance 50 %).",
    prediction="GloVe does not change at all and stays at chance. ELMo and BERT change by more than 0.01 and tell the sense "
    "in at least 70 %; BERT at least 5 points better than before training.",
    explanation="Bank is a place for money or a place to sit. A dictionary of vectors, as GloVe is, has one entry for both. "
    "ELMo and BERT write the vector of a word after they have read the sentence around it, so that the bank of the park differs "
    "from the bank with the money.",
    formula="GloVe: v = E[w];   ELMo, BERT: v = f(w₁ … wₙ) at the word's position",
    changes="An untrained network mixes in the neighbours too, and topics here are easy to tell from neighbours. Natural "
    "senses are finer than topics. The last layer is measured; others may tell more.",
    variants={
        "GloVe": {"model": "glove", "trained": True, "mean": False},
        "GloVe, mean of the sentence": {"model": "glove", "trained": True, "mean": True},
        "ELMo": {"model": "elmo", "trained": True},
        "BERT": {"model": "bert", "trained": True},
        "BERT, untrained": {"model": "bert", "trained": False},
    },
    sizes={
        "cpu": {"documents": 4000, "sentences": 6000, "bert steps": 1000, "elmo steps": 400},
        "quick": {"documents": 1500, "sentences": 4000, "bert steps": 400, "elmo steps": 60, "training.batch_tokens": 1024},
    },
    measure=measure,
    units={"senses": "senses told from the vector", "change": "cosine distance between two contexts"},
    parts=(
        Always("GloVe does not change", "change", "GloVe", at_most=1e-5),
        Always("ELMo changes", "change", "ELMo", at_least=0.01),
        Always("BERT changes", "change", "BERT", at_least=0.01),
        Higher("ELMo tells senses", "senses", "ELMo", than=0.5, by=0.2),
        Higher("BERT tells senses", "senses", "BERT", than=0.5, by=0.2),
        Higher("training is the reason", "senses", "BERT", "BERT, untrained", by=0.05),
    ),
    controls=(
        Same("one vector for both senses tells nothing", "senses", "GloVe", than=0.5, within=0.01),
        Higher("the words around tell the sense", "senses", "GloVe, mean of the sentence", than=0.5, by=0.2),
    ),
    picture=picture,
)
