"""Integrated gradients, occlusion and contrasts, for every kind of model, against computations of their own."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inspected_models import TEXT, TRANSLATORS, TREE, generator, reader, translator
from qkv.base.errors import ConfigError
from qkv.base.rows import padded_rows
from qkv.lens.attribution import Completeness, attribute
from qkv.lens.explained import Explained
from qkv.lens.tokenized_text import TokenizedText

MASKED = "Paris is the [MASK] of France."


def double_translator(name: str) -> Any:
    inspector = translator(name).inspect(TREE, "Le café")
    return replace(inspector, network=deepcopy(inspector.network).double())


def inspectors(folder: Path) -> dict[str, Any]:
    """Return an inspector of each way of running a model, in double precision."""
    bert, xlnet, gpt = reader("bert", folder / "b"), reader("xlnet", folder / "x"), generator(folder)
    bert.model.double()
    xlnet.model.double()
    gpt.causal_lm.gpt.double()
    return {
        **{name: double_translator(name) for name in ("transformer", "structural", "rnn", "unilm")},
        "bert": bert.inspect(MASKED),
        "xlnet": xlnet.inspect(MASKED),
        "gpt": gpt.inspect("The quick brown fox", " jumps over"),
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return inspectors(tmp_path_factory.mktemp("runs"))


def other_token(inspector: Any, kind: str) -> int:
    """Return a token that stands for a whole word, other than the model's own prediction."""
    tokenizer = inspector.tokenizer
    words = ((n, tokenizer.decode([n]).strip()) for n in range(len(tokenizer)) if n not in tokenizer.special_ids)
    return next(n for n, word in words if word.isalpha() and tokenizer.encode_words([word])[0] == [n])


def contrast(inspector: Any, kind: str) -> Explained:
    """Ask why a word and not another one."""
    other = inspector.tokenizer.decode([other_token(inspector, kind)]).strip()
    word = {"bert": None, "xlnet": None, "gpt": len(inspector.texts["source"].words) - 1}.get(kind, 1)
    return inspector.explain(word, other)


KINDS = ("transformer", "structural", "rnn", "unilm", "bert", "xlnet", "gpt")


# Integrated gradients


def toy(score: Callable[[Tensor], Tensor]) -> tuple[nn.Embedding, Explained]:
    """Return a table of vectors, and a text of three tokens whose score is a function of their vectors (3, D)."""
    table = nn.Embedding(5, 3)
    text = TokenizedText([1, 2, 2], ["a", "b", "b"], [0, 1, 2], [False] * 3, ["a", "b", "b"])

    def scores(sources: Sequence[Sequence[int]], outputs: Tensor) -> Tensor:
        return torch.stack([score(vectors) for vectors in table(torch.tensor(sources))])[:, None].expand(outputs.shape)

    return table, Explained("it", text, 3, [0], table, scores, 4, 0)


def test_a_function_whose_integral_is_known() -> None:
    table, explained = toy(lambda x: x.sum(0).pow(2).sum())
    x = table.weight[[1, 2, 2]].detach()
    result = attribute(explained, "integrated")
    torch.testing.assert_close(result.values, x @ x.sum(0))
    assert result.completeness == Completeness(
        pytest.approx(float(x.sum(0).pow(2).sum()), rel=1e-5), pytest.approx(float(x.sum(0).pow(2).sum()), rel=1e-5),
        pytest.approx(0, abs=1e-5), 16, True,
    )  # fmt: skip


def test_more_steps_are_taken_until_the_sum_is_right_and_a_failure_is_reported() -> None:
    for function in (lambda x: 5 * torch.sigmoid(60 * (x.norm() - 1)), lambda x: x.sum() / (x.pow(2).sum() + 1e-12).sqrt()):
        result = attribute(toy(function)[1], "integrated").completeness
        assert result is not None and result.steps > 16 and result.complete
    _, jump = toy(lambda x: x.sum() * 0 + (x.detach().sum() != 0))  # no gradient leads from 0 to 1
    result = attribute(jump, "integrated").completeness
    assert result is not None and not result.complete and result.steps == 512
    assert (result.sum, result.difference, result.error) == (0, 1, 1)


@torch.no_grad()
def along_the_line(embedding: nn.Module, length: int, position: int, score: Callable[[], Tensor]) -> float:
    """Integrate the derivative by one token's scale numerically: another quadrature, and no gradient of torch's."""
    factors: list[Tensor] = []
    seen: list[int] = []

    def change(_: nn.Module, given: Any, output: Tensor) -> Tensor:
        seen.append(1)
        if len(seen) > 1:
            return output
        scale = torch.ones(output.size(1), dtype=output.dtype)
        scale[:length] = factors[0]
        return output * scale[:, None]

    def at(scale: float, own: float) -> float:
        factors[:] = [torch.full((length,), scale, dtype=torch.double)]
        factors[0][position] = own
        seen.clear()
        return float(score())

    hook = embedding.register_forward_hook(change)
    middles = (np.arange(40) + 0.5) / 40
    try:
        return float(np.mean([(at(m, m + 1e-5) - at(m, m - 1e-5)) / 2e-5 for m in middles]))
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", ["transformer", "unilm", "bert", "gpt"])
def test_integrated_gradients_are_those_of_a_numerical_integral(kind: str, found: dict[str, Any]) -> None:
    explained = contrast(found[kind], kind)
    result, first = attribute(explained, "integrated"), torch.zeros(1, 1, dtype=torch.long)
    source, position = explained.source.ids[: explained.length], explained.length - 2
    wanted = along_the_line(explained.embedding, explained.length, position, lambda: explained.scores([source], first))
    assert float(result.values[position]) == pytest.approx(wanted, rel=0.02, abs=0.005)


@pytest.mark.parametrize("kind", KINDS)
def test_integrated_gradients_sum_to_the_difference_of_scores(kind: str, found: dict[str, Any]) -> None:
    explained = found[kind].explain() if kind in ("bert", "transformer") else contrast(found[kind], kind)
    result = attribute(explained, "integrated")
    check = result.completeness
    assert check is not None and check.complete and result.each is not None
    assert float(result.values.sum()) == pytest.approx(check.sum, abs=1e-3)
    # Both ends of the line, by passes of their own: a table of zeros is the start.
    source, numbers = explained.source.ids[: explained.length], torch.arange(len(explained.positions))
    with torch.no_grad():
        whole = sum(float(explained.scores([source], numbers[None, n : n + 1])) for n in numbers)
        nothing = sum(zeroed(explained, lambda n=n: explained.scores([source], numbers[None, n : n + 1])) for n in numbers)  # type: ignore[misc]
    assert check.difference == pytest.approx(whole - nothing, abs=1e-4)
    assert abs(check.sum - check.difference) <= len(numbers) * 0.01 * max(1, abs(check.difference))


def zeroed(explained: Explained, score: Callable[[], Tensor]) -> float:
    """Return a score where the source's token vectors are 0."""
    seen: list[int] = []

    def change(_: nn.Module, given: Any, output: Tensor) -> Tensor:
        seen.append(1)
        return output if len(seen) > 1 else torch.cat([output[:, : explained.length] * 0, output[:, explained.length :]], 1)

    hook = explained.embedding.register_forward_hook(change)
    try:
        return float(score())
    finally:
        hook.remove()


# Occlusion


@torch.no_grad()
def alone(ids: list[int], inspector: Any) -> Any:
    """Return rows of one text, with the heads of the inspected text if they still fit it."""
    tokens = torch.tensor([ids])
    return padded_rows(
        tokens,
        torch.ones_like(tokens, dtype=torch.bool),
        inspector.source.head if len(ids) == inspector.source.ids.size(1) else None,
    )


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in TRANSLATORS if name != "linformer"])
def test_occlusion_of_translators_is_a_loop_over_words(name: str) -> None:
    inspector = double_translator(name)
    result = inspector.attribution("occlusion")
    source = inspector.texts["source"]

    def log_probabilities(ids: list[int]) -> Tensor:
        changed = replace(inspector, source=alone(ids, inspector))
        target = torch.tensor(inspector.texts["target"].ids)
        return changed.logits().log_softmax(-1)[torch.arange(len(target)), target]

    whole = log_probabilities(source.ids)
    for word in (0, 3, len(source.words) - 1):
        own = [n for n, number in enumerate(source.word_ids) if number == word]
        kept = [token for n, token in enumerate(source.ids) if n not in own]
        if name == "structural":
            kept = [inspector.tokenizer.unk if n in own else token for n, token in enumerate(source.ids)]
        torch.testing.assert_close(
            result.each[:, own].sum(1), (whole - log_probabilities(kept)).float(), rtol=1e-4, atol=1e-5, msg=f"{name} {word}"
        )
    assert float(result.values.sum()) == pytest.approx(float(result.each.sum()), rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "xlnet"])
def test_occlusion_of_encoders_masks_each_word(kind: str, found: dict[str, Any]) -> None:
    inspector = found[kind]
    result, source, mask = inspector.attribution("occlusion"), inspector.texts["source"], inspector.tokenizer.mask
    best = inspector.score()
    rotated = kind == "xlnet"
    position = int((inspector.rows.ids[0] == mask).nonzero()[0])
    token = int(inspector.logits()[position].argmax())
    for word in range(len(source.words)):
        own = [n for n, number in enumerate(source.word_ids) if number == word]
        ids = [mask if n in own else token for n, token in enumerate(source.ids)]
        ids = [ids[-1], *ids[:-1]] if rotated else ids
        changed = replace(inspector, rows=alone(ids, replace_source(inspector)))
        drop = best - changed.logits()[position].log_softmax(-1)[token]
        assert float(result.values[own].sum()) == pytest.approx(float(drop), abs=1e-5)
    assert float(result.values[[n for n, number in enumerate(source.word_ids) if number is None]].abs().sum()) == 0


def replace_source(inspector: Any) -> Any:
    inspector = deepcopy(inspector.rows)
    return type("Has", (), {"source": inspector})


@torch.no_grad()
def test_occlusion_of_a_gpt_leaves_words_out(found: dict[str, Any]) -> None:
    inspector = found["gpt"]
    source, network = inspector.texts["source"], inspector.network
    word = source.words.index("jumps")
    explained = inspector.explain(word)
    result = attribute(explained, "occlusion")
    own = [n for n, number in enumerate(source.word_ids) if number == word]
    assert explained.positions == own and explained.length == own[0]

    def log_probability(before: list[int]) -> float:
        ids = [*before, *(source.ids[n] for n in own)]
        logits = network.logits(network(padded_rows(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))))[0]
        chosen = logits.log_softmax(-1)[len(before) - 1 : -1, : len(inspector.tokenizer)]
        return float(chosen[torch.arange(len(own)), [source.ids[n] for n in own]].sum())

    before = source.ids[: own[0]]
    for number in range(word):
        hidden = [n for n, one in enumerate(source.word_ids[: own[0]]) if one == number]
        drop = log_probability(before) - log_probability([token for n, token in enumerate(before) if n not in hidden])
        assert float(result.values[hidden].sum()) == pytest.approx(drop, abs=1e-5)
    assert not result.values[own[0] :].any()


def test_the_only_word_becomes_unknown() -> None:
    inspector = translator("transformer").inspect("fox", "Le café")
    explained = inspector.explain()
    drops = explained.scores([explained.source.ids], torch.arange(3)[None]) - explained.scores(
        [[inspector.unknown]], torch.arange(3)[None]
    )
    torch.testing.assert_close(attribute(explained, "occlusion").each[:3].sum(1), drops[0].detach())  # type: ignore[index]


# Why this word and not that one


@pytest.mark.parametrize("kind", KINDS)
def test_a_contrast_is_the_difference_of_two_logits(kind: str, found: dict[str, Any]) -> None:
    inspector = found[kind]
    explained, mask = contrast(inspector, kind), inspector.tokenizer.mask
    with torch.no_grad():
        (score,) = explained.scores([explained.source.ids[: explained.length]], torch.zeros(1, 1, dtype=torch.long))[0].tolist()
        logits = inspector.logits()
    (position,) = explained.positions
    text = inspector.texts.get("target", inspector.texts["source"])
    if kind in ("bert", "xlnet"):
        row = int((inspector.rows.ids[0] == mask).nonzero()[0])
        own = int(logits[row].argmax())
    else:
        row, own = position - (kind == "gpt"), text.ids[position]
    assert score == pytest.approx(float(logits[row, own] - logits[row, other_token(inspector, kind)]), abs=1e-5)
    for method in ("gradient", "occlusion"):
        result = attribute(explained, method)
        assert "instead of" in result.of and result.values.abs().sum() > 0


def test_a_fine_tuned_class_is_compared_with_another_one(tmp_path: Path) -> None:
    loaded = reader("bert", tmp_path, ("pooler", "classes"), ("good", "bad", "so"), "classification")
    inspector = loaded.inspect(TEXT)
    label = inspector.output.split(" ")[0]
    other = next(name for name in ("good", "bad", "so") if name != label)
    result = attribute(inspector.explain(None, other), "integrated")
    assert result.of == f"the class “{label}” instead of “{other}”"
    assert result.completeness is not None and result.completeness.complete
    with pytest.raises(ConfigError, match="not another label that this model might predict; choose one of"):
        inspector.explain(None, label)
    with pytest.raises(ConfigError, match="one prediction for a text"):
        inspector.explain(1)


def test_mistakes(found: dict[str, Any]) -> None:
    mistakes: list[tuple[str, tuple[Any, ...], str]] = [
        ("transformer", (9,), "the translation has 2 words, and no other than these: Le café"),
        ("transformer", (None, "dog"), "is not given; give its number among: Le café"),
        ("transformer", (0, "Le"), "no token tells them apart"),
        ("transformer", (0, "ж"), "not a word that this model's vocabulary can write"),
        ("bert", (1,), r"the text has 1 \[MASK\] and no more"),
        ("bert", (0, "jumps over"), r"tokens in this model's vocabulary, and a \[MASK\] stands for one"),
    ]
    for kind, asked, said in mistakes:
        with pytest.raises(ConfigError, match=said):
            found[kind].explain(*asked)
    with pytest.raises(ConfigError, match="choose gradient, integrated, occlusion"):
        attribute(found["bert"].explain(), "shap")
