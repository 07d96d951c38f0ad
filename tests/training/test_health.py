"""Warnings of a run that goes wrong: each is made to happen, and none comes where training goes well."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pretraining_models import MAKERS
from qkv.jobs.health import count_tokens, expectations, make_probe
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.training.health import FEW_UPDATES, Expectations, Health, due
from qkv.training.log import read_metrics
from qkv.training.optimiser import update_ratio
from toy_passages import random_passages, vocabulary
from toy_training import ToyTrainer, toy_trainer

HEALTHY: dict[str, Any] = {
    "loss": 2.0,
    "gradient_norm": 1.0,
    "update_ratio": 0.002,
    "token_similarity/encoder.layers.0": 0.2,
    "token_similarity/encoder.layers.1": 0.4,
    "attention_entropy/encoder.layers.0.attention.0": 0.8,
    "attention_entropy/encoder.layers.0.attention.1": 0.6,
    "masked_loss": 5.0,
    "sentence_task_accuracy": 0.8,
}
WANTED = Expectations(7.0, "masked_loss", {"sentence_task_accuracy": 0.5})


def judged(**changed: Any) -> dict[str, str]:
    """Judge a run that was healthy for ten reports; -> the problems of the next one."""
    health = Health(WANTED)
    for report in range(1, 11):
        assert health.judge(50 * report, 1000, 50, HEALTHY) == []
    assert health.summary() == []
    return {warning.problem: str(warning) for warning in health.judge(550, 1000, 50, HEALTHY | changed)}


def test_states_may_be_alike_while_the_rate_rises() -> None:
    values = {"loss": 5.0, "token_similarity/encoder.layers.1": 0.998}
    health = Health()
    assert health.judge(400, 2000, 500, values) == []
    assert [warning.problem for warning in health.judge(500, 2000, 500, values)] == ["collapse-encoder.layers"]


@pytest.mark.parametrize(
    ("changed", "problem", "words"),
    [
        ({"token_similarity/encoder.layers.1": 0.998}, "collapse-encoder.layers", "after encoder.layers.1 are nearly the same"),
        (
            {f"attention_entropy/encoder.layers.0.attention.{n}": 0.999 for n in (0, 1)},
            "uniform-attention", "all heads attend to all tokens alike",
        ),
        (
            {f"attention_entropy/encoder.layers.0.attention.{n}": 0.001 for n in (0, 1)},
            "saturated-attention", "all heads attend to a single token each",
        ),
        ({"masked_loss": 6.9}, "unigram-plateau", "6.90 of 7.00 nats a token"),
        ({"masked_loss": 55.0, "learning_rate": 0.5}, "unigram-plateau", "is above what frequencies alone give: 55.00 of 7.00 "
         "nats a token; lower training.learning_rate (the rate is 0.5 now)"),
        ({"gradient_norm": 100.0}, "gradient-explodes", "norm is 100, usually 1"),
        ({"gradient_norm": 1e-5}, "gradient-vanishes", "has fallen to 1e-05 from 1"),
        ({"update_ratio": 0.2}, "large-updates", "by 20.0% of their length"),
        ({"sentence_task_accuracy": 0.51}, "chance-sentence_task_accuracy", "is 0.510, where guessing gives 0.500"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changed: dict[str, Any], problem: str, words: str) -> None:
    found = judged(**changed)
    assert list(found) == [problem]
    assert found[problem].startswith("since step 550 ") and words in found[problem]


def test_advice_does_not_contradict_itself() -> None:
    alike = {f"attention_entropy/encoder.layers.0.attention.{n}": 0.999 for n in (0, 1)}
    assert "raise training.learning_rate" in judged(**alike)["uniform-attention"]
    found = judged(**alike, **{"token_similarity/encoder.layers.1": 0.998})
    assert "lower training.learning_rate" in found["uniform-attention"] and "raise" not in found["uniform-attention"]


def test_the_end_repeats_the_figures_of_the_end() -> None:
    health = Health(WANTED)
    for step, loss in ((550, 55.0), (600, 6.9)):
        health.judge(step, 1000, 50, HEALTHY | {"masked_loss": loss})
    assert len(health.summary()) == 1
    assert health.summary()[0].startswith("since step 550 the loss has not left what frequencies alone give: 6.90 of 7.00")
    health.judge(650, 1000, 50, HEALTHY)
    assert health.summary()[0].endswith("(not at the end any more)")


def test_a_recall_of_nothing_is_no_guess() -> None:
    health = Health(Expectations(7.0, "masked_loss", {"recall_replaced": 0.0}))
    (plateau, warning) = health.judge(900, 1000, 50, HEALTHY | {"masked_loss": 6.9, "recall_replaced": 0.0})
    assert plateau.problem == "unigram-plateau"
    assert warning.message == (
        "recall_replaced is 0.000, so that nothing is found; train longer, or give the task more weight; the loss must leave "
        "what frequencies give first"
    )


def test_a_run_that_goes_well_is_silent() -> None:
    assert judged() == {}
    assert judged(gradient_norm=1e-5, masked_loss=0.1) == {}  # a loss that is learned has small gradients
    one_head = {"attention_entropy/encoder.layers.0.attention.0": 0.9999}
    assert judged(**one_head) == {}


def test_a_warning_comes_once_and_is_repeated_at_the_end() -> None:
    health, dead = Health(WANTED), HEALTHY | {"token_similarity/encoder.layers.1": 0.999}
    for step in (100, 150):
        health.judge(step, 1000, 50, HEALTHY)
    assert len(health.judge(200, 1000, 50, dead)) == 1 and health.judge(250, 1000, 50, dead) == []
    assert health.summary()[0].startswith("since step 200 ") and "not at the end" not in health.summary()[0]
    health.judge(300, 1000, 50, HEALTHY)
    assert health.summary()[0].endswith("(not at the end any more)")


def test_a_source_that_is_not_used_is_warned_of_until_it_is() -> None:
    health = Health(WANTED)
    unused, used = {"dev_loss": 5.0, "dev_source_gain": 0.002}, {"dev_loss": 4.0, "dev_source_gain": 0.4}
    assert health.judge_validation(200, 1000, 50, unused) == []  # a fifth of the run
    assert health.judge_validation(300, 1000, 50, used) == [] and health.judge_validation(300, 1000, 50, {"dev_loss": 5.0}) == []
    (warning,) = health.judge_validation(400, 1000, 50, unused)
    assert str(warning).startswith("since step 400 the decoder does not use the source: ") and "by +0.002 nats" in str(warning)
    assert health.judge_validation(500, 1000, 50, unused) == []
    health.judge(550, 1000, 50, HEALTHY)  # reports do not say that it is over
    assert health.summary() == [str(warning)]
    health.judge_validation(600, 1000, 50, used)
    assert health.summary() == [f"{warning} (not at the end any more)"]
    health.judge(650, 1000, 50, HEALTHY | {"update_ratio": 0.2})
    health.judge_validation(700, 1000, 50, used)
    assert "not at the end" not in health.summary()[1]  # nor do validations judge what reports do


def test_initial_states_are_not_judged() -> None:
    health = Health(WANTED)
    uniform = {name: 1.0 for name in HEALTHY if name.startswith("attention")} | {"masked_loss": 9.0}
    assert health.judge(50, 1000, 50, HEALTHY | uniform | {"token_similarity/encoder.layers.1": 1.0}) == []
    assert health.judge(200, 1000, 50, HEALTHY | uniform) == []  # a fifth of the run
    assert {warning.problem for warning in health.judge(300, 1000, 50, HEALTHY | uniform)} == {
        "uniform-attention", "unigram-plateau"
    }  # fmt: skip


def test_a_loss_that_rises_for_some_reports_is_warned_of() -> None:
    health = Health(WANTED)
    losses = [3.0 - 0.03 * report for report in range(30)] + [3.0] * 3 + [2.2] * 10 + [2.9] * 12
    reports = [HEALTHY | {"masked_loss": loss} for loss in losses]
    found = [warning for step, report in enumerate(reports) for warning in health.judge(step, 1000, 50, report)]
    (warning,) = found  # three high reports are noise
    assert (
        warning.problem == "loss-rises" and warning.step > 43 and "risen to 2.69 from 2.26: training is unstable" in str(warning)
    )


def test_a_task_has_half_of_the_run_to_leave_guessing() -> None:
    health, guessing = Health(WANTED), HEALTHY | {"sentence_task_accuracy": 0.5}
    assert health.judge(450, 1000, 50, guessing) == []
    assert [warning.problem for warning in health.judge(500, 1000, 50, guessing)] == ["chance-sentence_task_accuracy"]


def test_probes_on_a_gpu_are_far_between() -> None:
    steps = [step for step in range(1, 6001) if due(step, 50, 1000, "cuda")]
    assert steps == [50, 100, 200, 400, 800, 1600, 3200, 4800]


def test_a_resumed_run_remembers() -> None:
    health = Health(WANTED)
    lines = [{"step": 100, "loss": 3.0, "gradient_norm": 2.0}, {"step": 200, "warnings": {"large-updates": "an update ..."}}]
    health.remember(lines)
    assert health.summary() == ["since step 200 an update ..."] and health.norms == [2.0] and health.losses == [3.0]
    assert health.judge(300, 1000, 50, HEALTHY | {"update_ratio": 0.3}) == []


def test_a_problem_that_others_find_stays_until_they_say_that_it_has_passed() -> None:
    health = Health(WANTED)
    assert health.note(FEW_UPDATES, 10, "few updates") and not health.note(FEW_UPDATES, 20, "few updates")
    assert [warning.problem for warning in health.take_noted()] == [FEW_UPDATES] and health.take_noted() == []
    assert health.judge(100, 1000, 50, HEALTHY) == []
    assert health.summary() == ["few updates"]
    health.note(FEW_UPDATES, 150, None)
    assert health.summary() == ["few updates (not at the end any more)"]


def test_health_is_measured_often_at_first_and_then_thrice_a_validation() -> None:
    measured = [step for step in range(1, 4001) if due(step, 50, 1000)]
    assert measured[:5] == [50, 100, 200, 350, 700]
    assert all(after - before == 350 for before, after in itertools.pairwise(measured[3:]))
    assert [step for step in range(1, 13) if due(step, 1, 4)] == list(range(1, 13))


def test_frequencies_alone() -> None:
    masked = MaskedLanguageModelling(MaskedConfig(sentence_task="next"), vocabulary(50))
    counts = np.array([0, 0, 2, 2])
    found = expectations(masked, counts)
    assert found.unigram_loss == pytest.approx(np.log(2)) and found.loss == "masked_loss"
    assert found.chance == {"sentence_task_accuracy": 0.5}
    # With label smoothing, the best constant distribution has its own entropy.
    smoothed = Translation(TranslationConfig(smoothing=0.2), 2).unigram_loss(counts)
    wanted = torch.distributions.Categorical(torch.tensor([0.05, 0.05, 0.45, 0.45])).entropy()
    assert smoothed == pytest.approx(float(wanted), abs=1e-6)
    assert expectations(masked, None).unigram_loss is None


# In the loop


def watched(tmp_path: Path, health: Health | None = None, **config: Any) -> ToyTrainer:
    trainer = toy_trainer(tmp_path / "run", **config)
    trainer.probe = make_probe(trainer.model, trainer.objective)
    trainer.health = health or Health()
    return trainer


def test_the_update_ratio_is_that_of_the_update(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path / "run", steps=5, clip=0.0)
    before: dict[str, torch.Tensor] = {}
    update = trainer.update

    def recorded(batch: Any) -> None:
        before.update({name: p.detach().clone() for name, p in trainer.model.named_parameters()})
        update(batch)

    trainer.update = recorded  # type: ignore[method-assign]
    trainer.train()
    matrices = {name: p for name, p in trainer.model.named_parameters() if p.dim() > 1}
    moved = torch.stack([(p - before[name]).norm() for name, p in matrices.items()]).norm()
    length = torch.stack([p.norm() for p in matrices.values()]).norm()
    assert float(update_ratio(trainer.optimiser)) == pytest.approx(float((moved / length).detach()), rel=1e-3)


def test_figures_are_in_the_log_and_change_nothing(tmp_path: Path) -> None:
    plain, probed = toy_trainer(tmp_path / "plain"), watched(tmp_path)
    plain.train(), probed.train()
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), probed.model.parameters(), strict=True))
    lines = [line for line in read_metrics(tmp_path / "run") if "update_ratio" in line]
    assert lines and all("gradient_norm" in line for line in lines)
    assert {"token_similarity/encoder.0", "text_similarity/decoder.0"} <= lines[0].keys()
    assert any(name.startswith("attention_entropy/") for name in lines[0])


def test_what_the_probe_draws_depends_on_its_seed_alone() -> None:
    """Torch's generator neither changes them nor is changed."""
    objective, model = MAKERS["masked"]()
    figures, passages = make_probe(model, objective), random_passages(rows=4)
    found = []
    for seed, before in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(before)
        found.append(figures((passages,), seed))
        assert torch.initial_seed() == before
    assert found[0] == found[1] != found[2]


def test_a_rate_that_is_too_high_is_warned_of(tmp_path: Path) -> None:
    trainer = watched(tmp_path, steps=130, learning_rate=0.3, warmup=10, log_every=10, validate_every=30, save_every=130)
    trainer.train()
    assert any("lower training.learning_rate" in warning for warning in trainer.progress.warnings)
    logged = [json.dumps(line["warnings"]) for line in read_metrics(tmp_path / "run") if "warnings" in line]
    assert logged and trainer.health.summary()


def test_counts_of_tokens() -> None:
    from qkv.data.tokens import token_texts

    texts = token_texts([[1, 2], [2], [3, 3, 3]])
    assert count_tokens(texts, np.array([0, 2]), 5).tolist() == [0, 1, 1, 3, 0]
