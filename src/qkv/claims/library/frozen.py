"""Fine-tuning beats frozen features (Devlin et al. 2019, section 5.3; Peters et al. 2019, To Tune or Not to Tune?).

A small BERT, pretrained with masked words, learns to tell right from wrong verbs: by fine-tuning all weights; with a frozen
network and a new head on its first token; or by a linear classifier on the mean of its frozen states. The first token has learned
nothing in pretraining, so that only the mean is a fair rival. Fine-tuning might also win without pretraining, by training more
weights: the last variant tests that.
"""

import numpy as np

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.language import Language, Sentence, texts
from qkv.claims.pictures import Picture, strip
from qkv.claims.probes import agreement, verb_examples, word_states
from qkv.claims.training import ENCODER, Trained, train_labels, train_text
from qkv.claims.verdict import Higher

SHAPE = {"topics": 4, "nouns": 12, "verbs": 6, "adjectives": 4, "roles": 1}
UNTRAINED = {"training.learning_rate": 1e-12}
RIDGE = 1.0


def linear(run: Trained, train: list[Sentence], test: list[Sentence]) -> float:
    """Return the accuracy of ridge regression on the mean states of sentences with right and wrong verbs."""
    parts = []
    for sentences in (train, test):
        shown = [one._replace(words=one.wrong_number) if number % 2 else one for number, one in enumerate(sentences)]
        means = np.stack([states.mean(0) for states in word_states(run, shown)])
        labels = np.where(np.arange(len(shown)) % 2, -1.0, 1.0)  # the same examples as in fine-tuning
        parts.append((np.hstack([means, np.ones((len(means), 1))]), labels))
    (x, y), (unseen, answers) = parts
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return float((np.sign(unseen @ weights) == answers).mean())


def measure(cell: Cell) -> Measured:
    """Pretrain, then learn the task in one of the ways."""
    language = Language(cell.seed, **SHAPE)
    found = texts(language.documents(cell["documents"] + 100, cell.seed))
    initial = cell["way"] == "initial"
    run = train_text(
        cell, "bert-mini", {**ENCODER, **(UNTRAINED if initial else {})}, found[100:], found[:100],
        steps=1 if initial else cell["steps"], finish=True,
    )  # fmt: skip
    sentences = language.sentences(1000 + cell["examples"], 1000 + cell.seed)
    test, train = sentences[:1000], sentences[1000:]
    masked = agreement(run, test)
    if cell["way"] == "linear":
        return {"right": linear(run, train, test), "masked": masked}
    freeze = (lambda job: job.model.encoder.requires_grad_(False)) if cell["way"] == "frozen" else None
    tuned = train_labels(cell, run, verb_examples(train), verb_examples(test), steps=cell["tuning"], change=freeze)
    return {"right": tuned.scores()["accuracy"], "masked": masked}


def picture(result: Result) -> Picture:
    """Draw the accuracies."""
    return strip(result, "right", marks={"chance": 0.5}, span=(0.4, 1))


CLAIM = Claim(
    topic="pretraining",
    statement="Fine-tuning beats frozen features.",
    source="Devlin et al. 2019, BERT, section 5.3; Peters et al. 2019, To Tune or Not to Tune?",
    measured="The accuracy in telling sentences with the right verb from those with the verb in the wrong number (chance 50 "
    "%), after learning from as many examples.",
    prediction="Fine-tuning is at least 3 points better than a linear classifier on the mean of frozen states, and than a "
    "head on the frozen first token; and at least 3 points better than without pretraining.",
    explanation="A pretrained network has made notes on the text. With frozen features we learn to read the notes; with "
    "fine-tuning it learns to take notes for our question.",
    formula="frozen: min over θ_head;   fine-tuning: min over θ_head and θ_encoder, starting from pretrained θ_encoder",
    changes="For names in text the paper loses only 0.3 points with frozen features from four layers and an LSTM on top. "
    "Few examples favour frozen features; a task that the notes answer as they are leaves nothing to gain.",
    variants={
        "fine-tuned": {"way": "tuned"},
        "frozen, linear on the mean": {"way": "linear"},
        "frozen, head on the first token": {"way": "frozen"},
        "fine-tuned, no pretraining": {"way": "initial"},
    },
    sizes={
        "cpu": {"documents": 3000, "steps": 1200, "examples": 1000, "tuning": 300},
        "quick": {"documents": 1500, "steps": 250, "tuning": 80, "training.batch_tokens": 1024},
    },
    measure=measure,
    units={"right": "right and wrong verbs told apart", "masked": "masked verbs in the right number"},
    parts=(
        Higher("better than a linear classifier", "right", "fine-tuned", "frozen, linear on the mean", by=0.03),
        Higher("better than a head on the first token", "right", "fine-tuned", "frozen, head on the first token", by=0.03),
        Higher("pretraining is part of the reason", "right", "fine-tuned", "fine-tuned, no pretraining", by=0.03),
    ),
    controls=(
        Higher("pretraining learns agreement", "masked", "fine-tuned", than=0.5, by=0.1),
        Higher("fine-tuning learns the task", "right", "fine-tuned", than=0.5, by=0.1),
    ),
    picture=picture,
)
