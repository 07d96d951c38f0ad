"""Training for claims: every job, small; the same cell gives the same run; a change reaches the model before training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from qkv.base.errors import DataError
from qkv.claims import tasks
from qkv.claims.claim import Cell
from qkv.claims.language import Language, training_text
from qkv.claims.probes import agreement, frozen_verb_accuracy, tokenizer_of, word_states
from qkv.claims.training import ENCODER, GPT, RNN, TRANSFORMER, Watch, larger_weights, train_labels, train_pairs, train_text
from qkv.jobs.job import Job


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    monkeypatch.setenv("QKV_CACHE", str(tmp_path / "cache"))
    small = {"model.width": 16, "training.batch_tokens": 256}
    return Cell("a", 1, small, "cpu", tmp_path)


def test_translators_learn_by_the_same_job_each_time(cell: Cell) -> None:
    pairs = tasks.examples(tasks.copy, 1, 60, (2, 4), tasks.letters(6), 10)
    seen: list[Job] = []
    runs = [
        train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=3, change=change)
        for change in (None, seen.append)
    ]
    assert runs[0].loss() == runs[1].loss(), "the same cell gives the same run, bit for bit"
    assert seen == [runs[1].job]
    assert 0 <= runs[0].exact(pairs.test) <= runs[0].word_accuracy(pairs.test) <= 1
    other = train_pairs(cell, "rnn-small", RNN, pairs.train, pairs.dev, steps=3)
    assert other.parameters == sum(p.numel() for p in other.model.parameters())
    assert not other.model.training


def test_pretraining_and_fine_tuning_follow_each_other(cell: Cell) -> None:
    text, dev = training_text(cell, 40, 10)
    bert = train_text(cell, "bert-mini", ENCODER, text, dev, steps=3, finish=True, name="bert")
    assert set(bert.scores()) > {"dev_loss"}
    language = Language(1, topics=2)
    labelled = [(s.text, f"topic{s.topic}") for s in language.sentences(60, 1)]
    tuned = train_labels(cell, bert, labelled[20:], labelled[:20], steps=2)
    assert 0 <= tuned.scores()["accuracy"] <= 1
    sentences = language.sentences(5, 2)
    states = word_states(bert, sentences)
    assert [one.shape for one in states] == [(len(s.words), 16) for s in sentences]
    assert np.allclose(word_states(bert, sentences[3:4])[0], states[3], atol=1e-5), "each sentence is read by itself"
    # Always to guess singular is chance, although most subjects are singular.
    own = Language(cell.seed)
    tokenizer = tokenizer_of(bert)
    bert.model.heads["masked"].bias.data[[tokenizer.encode(verb + "t")[0] for verb in own.verbs]] += 100
    assert agreement(bert, own.sentences(300, 2)) == 0.5
    assert 0.3 < frozen_verb_accuracy(bert, own.sentences(60, 3), own.sentences(100, 4), at_verb=True) <= 1
    seen: list[tuple[int, bool]] = []

    def change(job: Job) -> Watch:
        model: Any = job.model
        weight = model.encoder.layers[0].attention.qkv.weight
        before = weight.clone()
        larger_weights(job)
        assert torch.allclose(weight, before * 12.5), "from 0.02 to 1 / √16"
        return lambda step: seen.append((step, job.model.training))

    gpt = train_text(cell, "gpt-mini", {**GPT, "training.validate_every": 1}, text, dev, steps=2, change=change)
    assert gpt.curve() and gpt.loss() > 0
    assert seen == [(1, False), (2, False)], "it is called after each update, in evaluation"


def test_a_training_that_would_drop_pairs_is_refused(cell: Cell) -> None:
    pairs = tasks.examples(tasks.copy, 1, 40, (5, 30), tasks.letters(6), 5)
    settings: dict[str, Any] = {**TRANSFORMER, "data.max_tokens": 20}
    with pytest.raises(DataError, match="dropped"):
        train_pairs(cell, "transformer-small", settings, pairs.train, pairs.dev, steps=1)


def test_hooks_of_the_scaling_claim_undo_the_division(cell: Cell) -> None:
    from qkv.claims.claim import find_claim

    scaling: Any = find_claim("scaling").claim.measure.__globals__
    pairs = tasks.examples(tasks.copy, 1, 20, (2, 4), tasks.letters(6), 5)
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=1)
    attention = run.model.encoder[0].attention
    x = torch.randn(2, 3, 16)
    before = attention.qkv(x)
    scaling["without_scaling"](run.job)
    after = attention.qkv(x)
    assert torch.allclose(after[..., :16], before[..., :16] * 2) and torch.equal(after[..., 16:], before[..., 16:])


def test_electra_of_the_claim_learns_from_chosen_tokens_only(cell: Cell) -> None:
    from qkv.claims.claim import find_claim

    claim: Any = find_claim("electra-tokens").claim.measure.__globals__
    text, dev = training_text(cell, 20, 10)
    shares = []
    for change in (None, claim["chosen_tokens_only"]):
        settings = {**claim["ELECTRA"], **ENCODER, "model.embedding_width": 16}
        run = train_text(cell, "electra-small", settings, text, dev, steps=1, change=change)
        validator: Any = run.job.validator
        (passages,) = next(iter(validator.batches.in_order())).inputs
        logits: list[Tensor] = []
        run.model.discriminator.heads["replaced"].register_forward_hook(lambda *call, kept=logits: kept.append(call[-1]))
        loss = run.job.objective.loss(run.model, passages)
        (gradient,) = torch.autograd.grad(loss, logits)
        shares.append(float(((gradient != 0) & (passages.text > 0)).sum() / (passages.text > 0).sum()))
    assert shares[0] == 1
    assert 0.1 < shares[1] < 0.2
