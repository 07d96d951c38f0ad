"""A word's vector changes with its context in ELMo and BERT, and not in GloVe (Peters et al. 2018, section 5.3).

Some nouns of the artificial language have two senses, as bank has. We ask whether the vector of such a noun, in a sentence, tells
its sense. Any network that mixes words has vectors that change with the context, an untrained one too: so that is the rival, a
BERT with its initial weights. The mean of GloVe over the sentence shows how much the words around tell.
"""

import numpy as np

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, Sentence, texts
from qkv.claims.pictures import strip
from qkv.claims.probes import train_words, word_states
from qkv.claims.training import ENCODER, larger_weights, train_text
from qkv.claims.verdict import Always, Higher, Same

SHAPE = {"topics": 4, "nouns": 12, "verbs": 6, "adjectives": 4, "roles": 1}
ELMO = {
    "tokenizer": {"kind": "words"}, "data.length": 64, "model.width": 64, "model.lstm_width": 96, "model.highway_layers": 1,
    "model.filters": [[1, 16], [2, 16], [3, 32]], "model.max_characters": 16, "model.dropout": 0.0, "model.output_words": 8000,
    "training.learning_rate": 0.004, "training.batch_tokens": 1024,
}  # fmt: skip
BERT = {**ENCODER, "objective.rate": 0.2, "training.learning_rate": 0.003, "training.batch_tokens": 1024}
UNTRAINED = {"training.learning_rate": 1e-12}


def content(sentence: Sentence) -> Sentence:
    """Leave nouns, verbs and adjectives of a sentence, and say where its ambiguous nouns are now."""
    kept = [i for i, tag in enumerate(sentence.tags) if tag in ("noun", "verb", "adjective")]
    senses = [(kept.index(position), topic) for position, topic in sentence.senses]
    return sentence._replace(words=[sentence.words[i] for i in kept], tags=[sentence.tags[i] for i in kept], senses=senses)


def states(cell: Cell, language: Language, sentences: list[Sentence]) -> list[np.ndarray]:
    """Train a model; return its vectors of the words of each sentence."""
    found = texts([[content(one) for one in some] for some in language.documents(cell["documents"], cell.seed)])
    if cell["model"] == "glove":
        vectors = train_words(cell, "glove", found, width=64, window=5, epochs=30, x_max=10).vectors
        zero = np.zeros(64, np.float32)
        found_words = [np.stack([vectors[word] if word in vectors.index else zero for word in one.words]) for one in sentences]
        return [np.tile(some.mean(0), (len(some), 1)) if cell["mean"] else some for some in found_words]
    bert = cell["model"] == "bert"
    recipe, settings = ("bert-mini", BERT) if bert else ("elmo-mini", ELMO)
    settings, steps = (settings, cell[f"{cell['model']} steps"]) if cell["trained"] else ({**settings, **UNTRAINED}, 1)
    change = larger_weights if bert else None
    return word_states(train_text(cell, recipe, settings, found[100:], found[:100], steps=steps, change=change), sentences)


def probed(vectors: np.ndarray, words: np.ndarray, senses: np.ndarray) -> float:
    """Return how often a linear probe, fitted to every other vector, tells the senses of the rest; senses count alike."""
    x = np.concatenate([vectors, np.ones((len(vectors), 1))], 1) / max(float(np.abs(vectors).mean()), 1e-6)
    y = np.eye(senses.max() + 1)[senses]
    weights = np.linalg.solve(x[::2].T @ x[::2] + np.eye(x.shape[1]), x[::2].T @ y[::2])
    scores, right = x[1::2] @ weights, list[float]()
    words, senses = words[1::2], senses[1::2]
    for word in np.unique(words):
        both = np.unique(senses[words == word])
        if len(both) == 2:
            told = both[scores[words == word][:, both].argmax(1)]
            right += [float((told == sense)[senses[words == word] == sense].mean()) for sense in both]
    return float(np.mean(right))


def measure(cell: Cell) -> Measured:
    """Return how much the vectors of ambiguous nouns change between sentences, and how often they tell the sense."""
    language = Language(cell.seed, **SHAPE)
    sentences = [content(one) for one in language.sentences(cell["sentences"], 1000 + cell.seed)]
    at = [(number, position, topic) for number, one in enumerate(sentences) for position, topic in one.senses]
    words = np.array([sentences[number].words[position] for number, position, _ in at])
    found = states(cell, language, sentences)
    vectors = np.stack([found[number][position] for number, position, _ in at])
    known = np.abs(vectors).sum(1) > 0
    unit = vectors[known] / np.linalg.norm(vectors[known], axis=1, keepdims=True)
    pairs = [(one[0], one[1:]) for word in np.unique(words[known]) if len(one := unit[words[known] == word]) > 1]
    change = 1 - float(np.mean([np.mean(others @ first) for first, others in pairs]))
    return {"senses": probed(vectors, words, np.array([topic for *_, topic in at])), "change": change}


CLAIM = Claim(
    topic="words",
    statement="A word's vector changes with its context in ELMo and BERT, and not in GloVe.",
    source="Peters et al. 2018, Deep Contextualized Word Representations, section 5.3; Ethayarajh 2019",
    measured="For nouns with two senses, in sentences of content words by themselves: the cosine distance between vectors of "
    "the same word in two sentences, and how often a linear probe tells the sense from the vector (chance 50 %).",
    prediction="GloVe does not change at all and stays at chance. ELMo and BERT change by more than 0.01 and tell the sense "
    "in at least 70 %; BERT at least 5 points better than before training.",
    explanation="Bank is a place for money or a place to sit. A dictionary of vectors, as GloVe is, has one entry for both. "
    "ELMo and BERT write the vector of a word after they have read the sentence around it, so that the bank of the park differs "
    "from the bank with the money.",
    formula="GloVe: v = E[w];   ELMo, BERT: v = f(w₁ … wₙ) at the word's position",
    changes="An untrained network mixes in the neighbours too, and topics here are easy to tell from neighbours. Natural "
    "senses are finer than topics. The last layer is measured; others may tell more.",
    revised="In pilots with one seed, BERT and ELMo had, after 1,100 and 700 updates, "
    "learned classes of words and no topics, and told 55 % of the senses: texts have content words only now, which "
    "leaves topics to learn; the language has fewer words, initial weights are larger, and a linear probe over all nouns "
    "judges instead of the nearer of two means. Sizes of effects stayed.",
    variants={
        "GloVe": {"model": "glove", "mean": False},
        "GloVe, mean of the sentence": {"model": "glove", "mean": True},
        "ELMo": {"model": "elmo", "trained": True},
        "BERT": {"model": "bert", "trained": True},
        "BERT, untrained": {"model": "bert", "trained": False},
    },
    sizes={
        "cpu": {"documents": 3000, "sentences": 4000, "bert steps": 600, "elmo steps": 400},
        "quick": {"documents": 1500, "sentences": 3000, "bert steps": 300, "elmo steps": 150},
    },
    measure=measure,
    units={"senses": "senses told from the vector", "change": "cosine distance between two contexts"},
    parts=(
        Always("GloVe does not change", "change", "GloVe", at_most=1e-5),
        Always("ELMo changes", "change", "ELMo", at_least=0.01),
        Always("BERT changes", "change", "BERT", at_least=0.01),
        Higher("ELMo tells senses", "senses", "ELMo", than=0.5, by=0.2),
        Higher("BERT tells senses", "senses", "BERT", than=0.5, by=0.2),
    ),
    further=(Higher("training is the reason", "senses", "BERT", "BERT, untrained", by=0.05),),
    controls=(
        Same("one vector for both senses tells nothing", "senses", "GloVe", than=0.5, within=0.01),
        Higher("the words around tell the sense", "senses", "GloVe, mean of the sentence", than=0.5, by=0.2),
    ),
    picture=[strip("senses", marks={"chance": 0.5}, span=(0.4, 1)), strip("change")],
)
