"""Each pretraining objective teaches a tiny encoder more about an artificial language than word frequencies would."""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qkv.base.rows import IGNORE_INDEX
from qkv.data.batches import START
from qkv.data.documents import Documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD, CAPITAL, PASSAGE_TASKS
from qkv.data.passages import PassageBatches
from qkv.data.tokens import token_texts
from qkv.models.albert import Albert, AlbertConfig
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import Electra, ElectraConfig
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.objectives.ernie import ERNIE_TASKS, TOKEN_TASKS, ErnieTasks, ErnieTasksConfig
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.replaced import ReplacedConfig, ReplacedTokenDetection
from qkv.parts.heads import ModelWithHeads
from toy_passages import CLS, FIRST, PAD, SEP, vocabulary

# A document is about one topic. Its sentences are counted, and each is four words: its number, then an adjective, a noun and a
# verb that only go with each other. Nouns have capitals.
NUMBERS, TOPICS, KINDS, WORDS = 16, 4, 4, 3
VOCAB = FIRST + NUMBERS + TOPICS * KINDS * WORDS
SHAPE: dict[str, Any] = {"width": 64, "feedforward": 128, "heads": 4, "layers": 2, "max_positions": 32, "dropout": 0.0}
ROWS, LENGTH = 16, 32
LAST = 40  # updates at the end whose metrics are checked


def sentence(number: int, topic: int, rng: np.random.Generator) -> list[int]:
    first = FIRST + NUMBERS + (topic * KINDS + int(rng.integers(KINDS))) * WORDS
    return [FIRST + number, first, first + 1, first + 2]


def make_documents(count: int = 1500) -> Documents:
    rng = np.random.default_rng(0)
    topics = rng.integers(TOPICS, size=count)
    tokens = [[t for n in range(rng.integers(8, NUMBERS + 1)) for t in sentence(n, topic, rng)] for topic in topics]
    word = BEGINS_WORD | BEGINS_UNIT
    flags = [[word, word, word | CAPITAL, BEGINS_WORD] * (len(ids) // 4) for ids in tokens]  # a noun and its verb are one unit
    return Documents(token_texts(tokens), token_texts([[4] * (len(ids) // 4) for ids in tokens]), token_texts(flags))


def make_batches(tasks: Iterable[str]) -> PassageBatches:
    documents = make_documents()
    return PassageBatches(
        documents=documents, chosen=np.arange(len(documents)), seed=1, rows=ROWS, length=LENGTH,
        bos=CLS, eos=SEP, pad=PAD, tasks=dict.fromkeys(tasks, (1.0, 0)),
    )  # fmt: skip


def entropy(*answers: Tensor) -> float:
    """Return the loss of the best guess from label frequencies alone, in nats."""
    shares = torch.cat(answers).bincount().double()
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * shares.log()).sum())


def by_frequency(batches: PassageBatches, task: str) -> float:
    """Return this loss for the labels of a task: tokens, flags of tokens, or labels of texts."""
    found = []
    for passages in (batch.inputs[0] for batch in islice(batches.starting(START), 50)):
        words = passages.ids >= FIRST
        if task == "masked":
            found.append(passages.ids[words])
        elif task in TOKEN_TASKS:
            of_it = words & (passages.task == PASSAGE_TASKS.index(task))
            found.append((passages.flags[of_it] & TOKEN_TASKS[task] > 0).long())
        else:
            of_it = (passages.task.gather(1, passages.first) == PASSAGE_TASKS.index(task)) & (passages.labels != IGNORE_INDEX)
            found.append(passages.labels[of_it])
    return entropy(*found)


def learn(model: nn.Module, objective: Any, batches: PassageBatches, updates: int) -> dict[str, float]:
    """Train, and return the objective's metrics over the last updates."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 4 if parameter.dim() > 1 else 1  # the initialisation is meant for wider models
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, fused=True)
    model.train()
    for step, batch in enumerate(islice(batches.starting(START), updates)):
        if step == updates - LAST:
            objective.tally.read()
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min((step + 1) / 30, 1 - step / updates)
        (objective.loss(model, *batch.inputs) / batch.labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return objective.tally.read()


def test_bert_learns_words_and_which_passage_comes_next() -> None:
    c, batches = MaskedConfig(sentence_task="next", units="ngram"), make_batches(["next"])
    metrics = learn(
        ModelWithHeads(Bert(BertConfig(**SHAPE), VOCAB), c.heads), MaskedLanguageModelling(c, vocabulary(VOCAB)), batches, 300
    )
    assert metrics["masked_loss"] < 0.5 * by_frequency(batches, "masked")
    assert metrics["sentence_task_loss"] < 0.8 * by_frequency(batches, "next")
    assert metrics["sentence_task_accuracy"] > 0.75


def test_albert_learns_words_and_the_order_of_passages() -> None:
    c, batches = MaskedConfig(sentence_task="order", units="word"), make_batches(["order"])
    model = ModelWithHeads(Albert(AlbertConfig(**SHAPE, embedding_width=32), VOCAB), c.heads)
    metrics = learn(model, MaskedLanguageModelling(c, vocabulary(VOCAB)), batches, 300)
    assert metrics["masked_loss"] < 0.5 * by_frequency(batches, "masked")
    assert metrics["sentence_task_loss"] < 0.5 * by_frequency(batches, "order")
    assert metrics["sentence_task_accuracy"] > 0.85


@pytest.mark.parametrize("generator", [{"generator_size": 0.5}, {"generator_size": 1.0, "tied_generator": True}])
def test_electra_learns_words_and_what_was_replaced(generator: dict[str, Any]) -> None:
    batches = make_batches(["masking"])
    model = Electra(ElectraConfig(**SHAPE, embedding_width=64, **generator), VOCAB)
    metrics = learn(model, ReplacedTokenDetection(ReplacedConfig(), vocabulary(VOCAB)), batches, 300)
    assert metrics["generator_loss"] < 0.6 * by_frequency(batches, "masked")
    share = metrics["replaced"]
    assert 0.03 < share < 0.14  # of 15 % chosen, less special tokens and what the generator knows
    assert metrics["discriminator_loss"] < 0.9 * -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert metrics["recall_replaced"] > 0.15 and metrics["recall_original"] > 0.95


def test_ernie_learns_all_of_its_tasks() -> None:
    tasks = ("capital", "document", "reorder", "distance")
    c, batches = ErnieTasksConfig.model_validate({"tasks": [{"task": task} for task in tasks]}), make_batches(tasks)
    model = ModelWithHeads(Ernie(ErnieConfig(**SHAPE, task_types=len(ERNIE_TASKS)), VOCAB), c.heads)
    metrics = learn(model, ErnieTasks(c, vocabulary(VOCAB)), batches, 300)
    assert metrics["masked_loss"] < 0.5 * by_frequency(batches, "masked")
    for task in tasks:
        assert metrics[f"{task}_loss"] < 0.9 * by_frequency(batches, task), task
