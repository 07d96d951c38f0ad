"""Properties of word vectors and encoders that several claims measure, on the artificial language.

The language knows the topic and the class of its words, the sense of each ambiguous noun and the number of each verb, so that
all answers are known without annotation. D width.
"""

import contextlib
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows, padded_rows
from qkv.claims.claim import Cell
from qkv.claims.language import PLURAL, VERB_ENDINGS, Language, Sentence
from qkv.claims.training import Trained, train_labels, write_documents
from qkv.data.batches import START, Batch
from qkv.folder.run import load_tokenizers
from qkv.models import FAMILIES
from qkv.parts.heads import ModelWithHeads
from qkv.parts.token_scores import ControlTokens, TokenScores, one_by_one, scored_tokens, without_control
from qkv.text.tokenizer import Tokenizer
from qkv.vectors.train import METHODS, Method, TrainedVectors, train_vectors
from qkv.vectors.word_vectors import WordVectors

NEAREST = 10  # words
TEXTS = 256  # that an encoder reads at once
TESTED = 2000  # sentences with a right or a wrong verb
RIDGE = 1.0  # penalty of a linear classifier
LEAST = 2  # occurrences of a sense, to learn from and to test on
LATENT = 16  # topics that a bag of words can find

# Words


def train_words(cell: Cell, method: Method, documents: Sequence[Sequence[str]], **settings: Any) -> TrainedVectors:
    """Train word vectors on documents, on one thread, so that a cell gives the same vectors each time."""
    config = METHODS[method].config(**{"width": 50, "seed": cell.seed, "threads": 1, **settings})
    return train_vectors(method, [write_documents(cell, "text", documents)], config, quiet=True)


def word_counts(vectors: WordVectors) -> dict[str, int]:
    """Return how often each word occurred in the text that vectors were trained on."""
    assert vectors.counts is not None
    return dict(zip(vectors.words, vectors.counts.tolist(), strict=True))


def word_classes(language: Language) -> dict[str, tuple[str, int]]:
    """Return the class and the topic of each form of each word, without words that have several."""
    found: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for kind, words, endings in (
        ("noun", language.nouns, ("", PLURAL)),
        ("verb", language.verbs, VERB_ENDINGS),
        ("adjective", language.adjectives, ("",)),
    ):
        size = language.sizes[kind]
        for number, word in enumerate(words[: language.topics * size]):  # persons come last
            for ending in endings:
                found[word + ending].add((kind, number // size))
    return {word: next(iter(classes)) for word, classes in found.items() if len(classes) == 1}


def nearest_alike(vectors: WordVectors, asked: Sequence[str], labels: Mapping[str, Hashable]) -> float:
    """Return the share of the ten nearest words, among those with a label, that have the label of the word asked for."""
    words = [word for word in vectors.words if word in labels]
    index = {word: row for row, word in enumerate(words)}
    cosines = np.stack([vectors.unit(word) for word in asked]) @ np.stack([vectors.unit(word) for word in words]).T
    for row, word in enumerate(asked):
        if word in index:
            cosines[row, index[word]] = -np.inf
    nearest = np.argpartition(-cosines, NEAREST, axis=1)[:, :NEAREST]
    alike = [[labels[words[i]] == labels[word] for i in row] for word, row in zip(asked, nearest, strict=True)]
    return float(np.mean(alike))


# Encoders whose tokens are words


def tokenizer_of(run: Trained) -> Tokenizer:
    """Return the tokenizer of a run of pretraining."""
    found = load_tokenizers(run.folder)
    assert found is not None
    return found.source


def rows_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Rows:
    """Return texts as rows of one text each, with special tokens: word i is at position i + 1."""
    ids = [torch.tensor([tokenizer.bos, *one, tokenizer.eos]) for one in tokenizer.encode_batch(list(texts))]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad)
    return padded_rows(padded, torch.arange(padded.size(1)) < torch.tensor([[len(one)] for one in ids]))


@torch.no_grad()
def word_states(run: Trained, sentences: Sequence[Sentence]) -> list[np.ndarray]:
    """Return the last layer's states of the words of each sentence, read by itself. -> (words, D) each."""
    found, tokenizer = [], tokenizer_of(run)
    for start in range(0, len(sentences), TEXTS):
        some = sentences[start : start + TEXTS]
        rows = Rows(*(x.to(next(run.model.parameters()).device) for x in rows_of(tokenizer, [s.text for s in some])[:3]))
        *_, last = run.model.encoder.each_layer(rows)
        found += [states[1 : 1 + len(s.words)].cpu().numpy() for states, s in zip(last, some, strict=True)]
    return found


@torch.no_grad()
def line_loss(gpt: Any, tokenizer: Tokenizer, units: list[str], text: str, letters: Counter[str]) -> float:
    """Return the loss of a line, in nats; unknown words or characters are spelled by the frequencies of characters."""
    rows = Rows(*(x.to(next(gpt.parameters()).device) for x in rows_of(tokenizer, [text])[:3]))
    ids = rows.ids[0, 1:-1]  # without bos and eos
    loss = float(torch.nn.functional.cross_entropy(gpt.logits(gpt(rows))[0, :-2].float(), ids, reduction="sum"))
    unknown = [unit for unit, token in zip(units, ids.tolist(), strict=False) if token == tokenizer.unk]
    total = letters.total() + len(letters) + 1
    return loss - sum(math.log((letters[letter] + 1) / total) for unit in unknown for letter in unit)


def sense_accuracy(vectors: Sequence[np.ndarray], words: Sequence[str], senses: Sequence[int]) -> float:
    """Return how often the nearer of the two means of a word's senses is that of its own sense; chance is 50 %.

    Means come from every other occurrence, and the rest is tested; senses count alike, however frequent.
    """
    groups: dict[str, dict[int, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for vector, word, sense in zip(vectors, words, senses, strict=True):
        groups[word][sense].append(vector)
    right = []
    for group in groups.values():
        if len(group) == 2 and min(map(len, group.values())) >= 2 * LEAST:
            one, other = (np.stack(some) for some in group.values())
            means = one[::2].mean(0), other[::2].mean(0)
            nearer = [((some - means[0]) ** 2).sum(1) < ((some - means[1]) ** 2).sum(1) for some in (one[1::2], other[1::2])]
            right.append((nearer[0].mean() + 1 - nearer[1].mean()) / 2)
    return float(np.mean(right))


def state_sense_accuracy(run: Trained, sentences: Sequence[Sentence]) -> float:
    """Return the accuracy with which an encoder's states of ambiguous nouns tell their senses."""
    states = word_states(run, sentences)
    at = [(number, position, topic) for number, one in enumerate(sentences) for position, topic in one.senses]
    words = [sentences[number].words[position] for number, position, _ in at]
    return sense_accuracy([states[number][position] for number, position, _ in at], words, [topic for *_, topic in at])


@torch.no_grad()
def agreement(run: Trained, sentences: Sequence[Sentence]) -> float:
    """Return how often a masked verb is more probable in the number of its subject than in the other; chance is 50 %.

    Both numbers count alike: most subjects are singular, and always to guess so would be right in 72 %.
    """
    tokenizer, device = tokenizer_of(run), next(run.model.parameters()).device
    right: list[Tensor] = []
    plural: list[Tensor] = []
    for start in range(0, len(sentences), TEXTS):
        some = sentences[start : start + TEXTS]
        rows = rows_of(tokenizer, [one.text for one in some])
        wrong = rows_of(tokenizer, [" ".join(one.wrong_number) for one in some]).ids
        row, verb = torch.arange(len(some)), torch.tensor([one.verb + 1 for one in some])
        true, false = rows.ids[row, verb], wrong[row, verb]
        rows.ids[row, verb] = tokenizer.mask
        hidden = run.model.encoder(Rows(*(x.to(device) for x in rows[:3])))[row.to(device), verb.to(device)]
        logits = run.model.heads["masked"](hidden).cpu()
        known = (true != tokenizer.unk) & (false != tokenizer.unk)
        right.append((logits[row, true] > logits[row, false])[known])
        plural.append(torch.tensor([one.plural for one in some])[known])
    found, of_plural = torch.cat(right).float(), torch.cat(plural)
    return float((found[of_plural].mean() + found[~of_plural].mean()) / 2)


def verb_examples(sentences: Sequence[Sentence]) -> list[tuple[str, str]]:
    """Return sentences with a label, in turn as they are and with the verb in the wrong number."""
    return [(" ".join(one.wrong_number), "wrong") if number % 2 else (one.text, "right") for number, one in enumerate(sentences)]


def verb_accuracy(cell: Cell, run: Trained, language: Language) -> float:
    """Fine-tune a finished run to tell right from wrong verbs, and return its accuracy on other sentences; chance is 50 %.

    With few examples, fine-tuning is a matter of luck: a size may ask for several `tunings`, each with examples of its own, whose
    mean accuracy is returned.
    """
    tunings, examples = cell.settings.get("tunings", 1), cell["examples"]
    sentences = language.sentences(TESTED + tunings * examples, 1000 + cell.seed)
    test, told = verb_examples(sentences[:TESTED]), []
    for number in range(tunings):
        train = verb_examples(sentences[TESTED + number * examples :][:examples])
        tuned = train_labels(cell, run, train, test, name=f"tuned-{number}", steps=cell["tuning"], rate=cell["tuning_rate"])
        told.append(tuned.scores()["accuracy"])
    return statistics.mean(told)


def frozen_verb_accuracy(run: Trained, train: Sequence[Sentence], test: Sequence[Sentence], at_verb: bool = False) -> float:
    """Return the accuracy of ridge regression in telling the same from frozen states: their mean, or those of the verbs."""
    parts = []
    for sentences in (train, test):
        shown = [one._replace(words=one.wrong_number) if number % 2 else one for number, one in enumerate(sentences)]
        states = zip(word_states(run, shown), shown, strict=True)
        features = np.stack([found[one.verb] if at_verb else found.mean(0) for found, one in states])
        labels = np.where(np.arange(len(shown)) % 2, -1.0, 1.0)  # as in `verb_examples`
        parts.append((np.hstack([features, np.ones((len(features), 1))]), labels))
    (x, y), (unseen, answers) = parts
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return float((np.sign(unseen @ weights) == answers).mean())


# Heads


@contextlib.contextmanager
def without_heads(attention: Any, heads: Sequence[int]) -> Iterator[None]:
    """Remove heads of an attention layer: their parts of the input of its output projection become 0."""

    def remove(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept = inputs[0].unflatten(-1, (attention.heads, -1)).clone()
        kept[..., list(heads), :] = 0
        return (kept.flatten(-2),)

    hook = attention.out.register_forward_pre_hook(remove)
    try:
        yield
    finally:
        hook.remove()


# Passages that belong together, told by words alone


class BagOfWords(nn.Module):
    """A rival of BERT on pairs of passages: bags give mixtures of K learned topics, and those that agree belong together.

    The share of each word also has a weight for either passage, so that the rival could learn the order of passages by them.
    """

    def __init__(self, words: Tensor, rng: torch.Generator):
        """`words` (V,) is 1 for each word that the rival sees, else 0."""
        super().__init__()
        self.words = words
        self.topic = nn.Parameter(0.1 * torch.randn(len(words), LATENT, generator=rng))  # (V, K)
        self.side = nn.Parameter(torch.zeros(2, len(words)))  # (2, V)
        self.agreement = nn.Parameter(torch.tensor([5.0, 2.5]))  # scale and bias

    def forward(self, bags: Tensor) -> Tensor:
        """Return the logit of label 1, "not as in the document". (N, 2, V) -> (N,)."""
        bags = bags * self.words
        shares = bags / bags.sum(-1, keepdim=True).clamp(min=1)
        mixtures = (bags @ self.topic).softmax(-1)  # (N, 2, K)
        scale, bias = self.agreement
        return bias - scale * mixtures.prod(1).sum(-1) + (shares * self.side).sum((1, 2))


def bags_of(batch: Batch, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Return how often each passage of a pair has each token, and the labels of the pairs. -> (N, 2, V), (N,)."""
    (passages,) = batch.inputs
    rows, most = passages.labels.shape
    inside, pairs = passages.text > 0, passages.labels >= 0
    bag = 2 * (torch.arange(rows)[:, None] * most + passages.text - 1) + passages.segment
    counts = torch.zeros(2 * rows * most, vocabulary)
    counts.index_put_((bag[inside], passages.ids[inside]), torch.ones(()), accumulate=True)
    return counts.view(rows, most, 2, vocabulary)[pairs], passages.labels[pairs]


def bag_accuracy(run: Trained, words: Tensor, steps: int) -> float:
    """Train a bag of words on the first batches of a run with a sentence task, and return its accuracy on dev."""
    job: Any = run.job
    bag = BagOfWords(words, torch.Generator().manual_seed(run.recipe.seed))
    adam = torch.optim.Adam(bag.parameters(), lr=0.05)
    for batch in islice(job.batches.starting(START), steps):
        bags, labels = bags_of(batch, len(words))
        adam.zero_grad()
        F.binary_cross_entropy_with_logits(bag(bags), labels.float()).backward()
        adam.step()
    with torch.no_grad():
        dev = (bags_of(batch, len(words)) for batch in job.validator.batches.in_order())
        return float(torch.cat([(bag(bags) > 0) == (labels > 0) for bags, labels in dev]).float().mean())


# Encoders and language models


def read_by(run: Trained, lines: Sequence[str]) -> tuple[Rows, ControlTokens]:
    """Return texts as rows on the model's device, and the control tokens that scoring needs."""
    tokenizer, device = tokenizer_of(run), next(run.model.parameters()).device
    control = ControlTokens(tokenizer.mask, tokenizer.unk, (tokenizer.pad, tokenizer.bos, tokenizer.eos))
    return Rows(*(x.to(device) for x in rows_of(tokenizer, lines)[:3])), control


@torch.no_grad()
def next_word_loss(run: Trained, lines: Sequence[str]) -> float:
    """Return the loss in nats of each word given those before it."""
    rows, control = read_by(run, lines)
    logs, labels = FAMILIES[run.recipe.model.kind].token_scores.get("left", _at_the_end)(run.model, rows, control)
    return -float(logs[without_control(labels, control) >= 0].mean())


def _at_the_end(model: ModelWithHeads, rows: Rows, control: ControlTokens) -> TokenScores:
    """Score each token of a BERT as if the text ended there, with [MASK] in its place."""

    def hidden_at(position: int) -> Tensor:
        ids = rows.ids[:, : position + 2].clone()
        ids[:, position], ids[:, position + 1] = control.mask or 0, control.special[-1]
        return model.encoder(Rows(ids, torch.ones_like(ids), rows.position[:, : position + 2]))[:, position : position + 1]

    return one_by_one(model, "masked", hidden_at, scored_tokens(rows, control))
