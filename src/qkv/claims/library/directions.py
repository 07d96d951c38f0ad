"""Both directions help understanding, one direction helps generation (Devlin et al. 2019; Radford et al. 2018; Dong et al. 2019).

Understanding: a subject is hidden, and its number shows only in the verb that follows. Generation: how well is each next word
predicted from those before? BERT, which has no other way, is given the beginning of a sentence with [MASK] at its end. UniLM
shares its updates between both ways. The rival explanation is that a GPT is the weaker network: then it would also fail at
hidden verbs, whose number shows before them. And a GPT can be asked another way: which of both whole sentences is more probable?
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qkv.base.rows import Rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import LARGE, PLURAL, SIMPLE, Language, Sentence, sentence_text, texts
from qkv.claims.pictures import strip
from qkv.claims.probes import next_word_loss, read_by
from qkv.claims.training import SENTENCE_ENCODER, Trained, train_text
from qkv.claims.verdict import Higher, Lower
from qkv.models import FAMILIES

DIFFERS: dict[str, dict[str, Any]] = {
    "UniLM": {"objective.right_to_left": 0, "objective.sequence_to_sequence": 0},  # two texts of three are bidirectional
    "ELMo": {"model.lstm_width": 96, "model.filters": [[1, 16], [2, 32], [3, 48]], "model.max_characters": 16},
}
RECIPES = {"BERT": "bert-mini", "GPT": "gpt-mini", "UniLM": "unilm-mini", "ELMo": "elmo-mini"}


def logits_at(run: Trained, rows: Rows, at: Tensor, mask: int) -> Tensor:
    """Return what a model predicts at one hidden position of each row, from the words that it can see. -> (B, V)."""
    model, row = run.model, torch.arange(len(at), device=at.device)
    if not model.heads:  # GPT
        return model.encoder(rows)[row, at - 1] @ model.encoder.embedding.token_embedding.weight.T
    if "bidirectional" in model.heads:  # ELMo
        (*_, (forward, backward)), head = model.encoder.both_directions(rows), model.heads["bidirectional"]
        left, right = (states @ head.weight.T + head.bias for states in (forward[row, at - 1], backward[row, at + 1]))
        return left.log_softmax(-1) + right.log_softmax(-1)
    ids = rows.ids.clone()
    ids[row, at] = mask
    return model.heads["masked"](model.encoder(rows._replace(ids=ids))[row, at])


def wrong_subject(one: Sentence) -> list[str]:
    """Return the words with the subject in the other number."""
    at = one.tags.index("noun")
    other = one.words[at].removesuffix(PLURAL) if one.plural else one.words[at] + PLURAL
    return [*one.words[:at], other, *one.words[at + 1 :]]


@torch.no_grad()
def number_accuracy(run: Trained, sentences: Sequence[Sentence], wrong: Sequence[list[str]], whole: bool = False) -> float:
    """Return how often a hidden word is more probable in its number than in the other; both numbers count alike.

    With `whole`, the probabilities of both whole sentences are compared, word after word.
    """
    rows, control = read_by(run, [one.text for one in sentences])
    others = read_by(run, [" ".join(words) for words in wrong])[0].ids
    differ = rows.ids != others  # (B, T): one position of each row, or none where both forms are unknown
    at, row = differ.long().argmax(1), torch.arange(len(differ), device=differ.device)
    true, false = rows.ids[row, at], others[row, at]
    known = (true != control.unknown) & (false != control.unknown) & differ.any(1)
    if whole:
        score = FAMILIES[run.recipe.model.kind].token_scores["left"]
        right = score(run.model, rows, control).logs.sum(1) > score(run.model, rows._replace(ids=others), control).logs.sum(1)
    else:
        logits = logits_at(run, rows, at, control.mask or 0)
        right = logits[row, true] > logits[row, false]
    plural = torch.tensor([one.plural for one in sentences], device=known.device)
    return float((right[known & plural].float().mean() + right[known & ~plural].float().mean()) / 2)


def measure(cell: Cell) -> Measured:
    """Pretrain one of the models; measure hidden subjects and verbs, and next words."""
    language = Language(cell.seed, **cell["language"])
    settings: dict[str, Any] = {**SENTENCE_ENCODER, **cell["shape"], **DIFFERS.get(cell.variant, {})}
    if cell.variant == "ELMo":
        settings = {key: value for key, value in settings.items() if key not in ("model.heads", "model.feedforward")}
    train, dev = sentence_text(language, cell["sentences"], cell.seed)
    pairs = texts(language.documents(200, 1 + cell.seed, (2, 2)))  # UniLM wants some
    run = train_text(cell, RECIPES[cell.variant], settings, train + pairs[100:], dev + pairs[:100], steps=cell["steps"])
    sentences = language.sentences(2000, 1000 + cell.seed)
    subjects, verbs = [wrong_subject(one) for one in sentences], [one.wrong_number for one in sentences]
    return {
        "subjects": number_accuracy(run, sentences, subjects),
        "verbs": number_accuracy(run, sentences, verbs),
        "whole": number_accuracy(run, sentences, subjects, whole=cell.variant != "BERT"),  # which has no such score
        "next": next_word_loss(run, [one.text for one in sentences[:300]]),
    }


CLAIM = Claim(
    topic="pretraining",
    statement="Both directions help understanding, one direction helps generation; UniLM can do both.",
    source="Devlin et al. 2019, BERT, section 5.1; Radford et al. 2018, GPT; Dong et al. 2019, UniLM; Peters et al. 2018, ELMo",
    measured="How often the number of a hidden subject is told, which only its verb shows (chance 50 %), and of a hidden verb; "
    "the loss of each next word.",
    prediction="Hidden subjects: BERT, ELMo and UniLM at least 10 points better than GPT. Next words: GPT and UniLM at least "
    "0.3 nats better than BERT.",
    explanation="Who may read the whole sentence understands its first words better. Who has always read with the rest covered "
    "is used to guessing how it goes on.",
    formula="BERT: p(xₜ | all but xₜ);   GPT: p(xₜ | x₁ … xₜ₋₁);   UniLM: either;   ELMo: p(xₜ | left) · p(xₜ | right)",
    changes="A GPT that may compare whole sentences sees the verb, too: that figure stands beside the others. Other ways to "
    "make a BERT write are not tried.",
    revised="Senses of ambiguous nouns, asked for first, stayed near chance in pilots with seed 1. For hidden subjects "
    "effects were stated anew, before any run. UniLM has two bidirectional texts for each from left to right.",
    variants={"BERT": {}, "GPT": {}, "UniLM": {}, "ELMo": {}},
    sizes={
        "cpu": {"language": SIMPLE, "sentences": 20000, "steps": 1300, "shape": {}},
        "quick": {"steps": 600},
        "gpu": {
            "language": LARGE, "sentences": 100000, "steps": 3000,
            "training.batch_tokens": 8192,
            "shape": {"model.width": 128, "model.feedforward": 512, "model.layers": 3, "training.learning_rate": 0.001},
        },
    },
    measure=measure,
    units={
        "subjects": "numbers of hidden subjects told", "verbs": "numbers of hidden verbs told",
        "whole": "numbers of subjects told by whole sentences (BERT: as above)",
        "next": "loss of the next word, nats",
    },
    parts=(
        *(Higher(f"{name} understands better than GPT", "subjects", name, "GPT", by=0.1) for name in ("BERT", "ELMo", "UniLM")),
        *(Lower(f"{name} generates better than BERT", "next", name, "BERT", by=0.3) for name in ("GPT", "UniLM")),
    ),
    controls=(
        Higher("GPT tells numbers that show before", "verbs", "GPT", than=0.5, by=0.2),
        Higher("BERT tells numbers that show before", "verbs", "BERT", than=0.5, by=0.2),
    ),
    picture=[strip("subjects", "verbs", "whole", marks={"chance": 0.5}, span=(0.4, 1)), strip("next")],
)  # fmt: skip
