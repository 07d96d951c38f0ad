"""The steps of one head are the model's own numbers: each is recomputed from the weights, for every family and scheme."""

import json
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from encoder_runs import randomised, shape_of
from inspected_models import DEEP, SIZE, TEXT, TRANSLATORS, TREE, build_translator, generator, reader, tokenizer, translator
from qkv.base.errors import ConfigError
from qkv.base.rows import padded_rows
from qkv.lens.arithmetic import Arithmetic, HeadChoice, arithmetic
from qkv.lens.arithmetic.steps import TokenProbabilities
from qkv.lens.arithmetic.words import WORDS
from qkv.lens.inspectors import Inspector, SelfAttentionInspector
from qkv.lens.tokenized_text import tokenized_text
from qkv.lens.trace import traced
from qkv.models import FAMILIES
from recomputed_steps import METHODS, Recomputed

MORE_TRANSLATORS: dict[str, dict[str, Any]] = {
    "pre-norm, swiglu, alibi": {
        "kind": "transformer", **SIZE, **DEEP, "norm": "pre", "activation": "swiglu", "positions": "alibi"
    },
    "geglu": {"kind": "t5", **SIZE, **DEEP, "head_width": 6, "activation": "geglu", "tied": "inputs"},
    "general": {"kind": "rnn", "cell": "gru", "width": 16, "embedding_width": 12, "layers": 1, "attention": "general"},
}  # fmt: skip
STACKS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in ("bert", "albert", "electra", "ernie", "xlnet")},
    "unilm's encoder": {"kind": "unilm"},
    "window": {"kind": "bert", "attention": {"kind": "window", "radius": 3}},
    "bigbird": {"kind": "bert", "attention": {"kind": "bigbird", "radius": 2, "global_tokens": 1, "block_size": 16}},
    "sinusoidal": {"kind": "bert", "positions": "sinusoidal"},
    **{f"gpt, {name}": {"kind": "gpt", "positions": name} for name in ("learned", "rotary", "alibi", "relative", "none")},
    "gpt, post-norm": {"kind": "gpt", "norm": "post"},
    "t5's encoder": {"kind": "t5", "head_width": 6},
}
TARGET = "Le café est"
EVERYTHING = [*TRANSLATORS, *MORE_TRANSLATORS, *STACKS]
assert len({*EVERYTHING}) == len(EVERYTHING)


@dataclass(frozen=True)
class Loaded:
    """A loaded run of one inspector, whatever the text."""

    inspector: Inspector
    trees = False

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        return self.inspector


def stack(name: str) -> Loaded:
    """Return an encoder or a GPT with a text, a pair of texts where it knows segments."""
    options = dict(STACKS[name])
    kind = options.pop("kind")
    shape = {**SIZE, "encoder_layers": 3, **options} if kind == "t5" else shape_of(kind, **options)
    config = FAMILIES[kind].config(**shape)
    heads = () if kind in ("gpt", "t5", "xlnet") else ("masked",)
    model: Any = randomised(FAMILIES[kind].build_network(config, len(tokenizer()), heads))
    ids = [tokenizer().bos, *tokenizer().encode(TEXT), tokenizer().eos]
    rows = padded_rows(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
    segment = (rows.position >= 5).long() if kind in ("bert", "xlnet") else None
    texts = {"source": tokenized_text(tokenizer(), [*ids[1:], ids[0]] if kind == "xlnet" else ids)}
    head = model.encoder.logits if kind == "gpt" else model.heads["masked"] if heads else None
    role = "generator" if kind == "gpt" else "encoder"
    return Loaded(SelfAttentionInspector(role, kind, model.encoder, rows, segment, texts, tokenizer(), None, head=head))


def loaded(name: str) -> Any:
    if name in STACKS:
        return stack(name)
    model = build_translator(name, MORE_TRANSLATORS[name]) if name in MORE_TRANSLATORS else translator(name)
    return Loaded(model.inspect(TREE if name == "structural" else TEXT, TARGET))


def assert_recomputed(found: Arithmetic, inspector: Inspector, maps: Any) -> None:
    recomputed = Recomputed(inspector, found, maps)
    for step in found.steps:
        expected = recomputed.expected(step)
        tokens = [one for one in step.values if isinstance(one, TokenProbabilities)]
        if tokens:
            assert_tokens(tokens[0], expected["logits"], found, inspector)
            continue
        assert {one.name for one in step.values} == set(expected), step.name
        for name, values in expected.items():
            torch.testing.assert_close(
                step[name], values.float(), rtol=1e-4, atol=1e-5, msg=lambda m, s=step, n=name: f"{s.name}.{n}: {m}"
            )


def assert_tokens(shown: TokenProbabilities, logits: torch.Tensor, found: Arithmetic, inspector: Inspector) -> None:
    """Check the most probable tokens against recomputed logits, and those against the model's own."""
    own: Any = inspector.logits()
    torch.testing.assert_close(logits, own[found.position], rtol=1e-4, atol=1e-4)
    best = logits.softmax(-1).sort(descending=True)
    count = len(shown.tokens) - (shown.given == 10)
    assert shown.tokens[:count] == tokenizer().pieces(best.indices[:count].tolist()) and count == 10
    torch.testing.assert_close(shown.probabilities[:count], best.values[:count], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(shown.logits[:count], logits[best.indices[:count]], rtol=1e-4, atol=1e-4)
    assert (found.predicts is None) == (shown.given is None)
    if shown.given is not None:
        assert shown.tokens[shown.given] == found.predicts


@torch.no_grad()
@pytest.mark.parametrize("name", EVERYTHING)
def test_every_step_follows_from_the_weights(name: str) -> None:
    model = loaded(name)
    inspector = model.inspect(TEXT)
    maps = inspector.maps()
    for choice in arithmetic(model, TEXT).choices:
        last = choice["layers"] - 1
        for layer, head, position in ((0, choice["heads"] - 1, 0), (last, 0, min(4, choice["positions"] - 1))):
            found = arithmetic(model, TEXT, None, HeadChoice(choice["part"], layer, head, position))
            assert (found.part, found.layer, found.head, found.position) == (choice["part"], layer, head, position)
            assert_recomputed(found, inspector, maps)
            told = found.json()
            assert json.loads(json.dumps(told, allow_nan=False)) == told
            assert len(told["keys"]) == len(found["softmax"]["weights"])
            assert found.predicts is None or not found.steps[-1].name.startswith(("output", "pass_to"))


def test_every_step_has_words_and_is_recomputed() -> None:
    assert [name for name in WORDS if not hasattr(Recomputed, METHODS.get(name, name))] == []
    for name, words in WORDS.items():
        assert all(words) and words.says.endswith(".") and " = " in words.formula, name


def names(found: Arithmetic) -> list[str]:
    return [step.name for step in found.steps]


def test_where_positions_enter() -> None:
    entering = {
        "transformer": "position_added", "t5": "bias_bucket", "relative": "bias_relative", "gpt, alibi": "bias_distance",
        "gpt, rotary": "rotate", "xlnet": "dot_distance", "rnn": "position_recurrent", "gpt, none": "position_none",
        "convolution": "position_added", "structural": "bias_relative",
    }  # fmt: skip
    of_encoders = ("transformer", "t5", "relative", "structural")
    parts = {name: HeadChoice("encoder" if name in of_encoders else None) for name in entering}
    steps = {name: names(arithmetic(loaded(name), TEXT, None, part)) for name, part in parts.items()}
    assert [name for name, step in entering.items() if step not in steps[name]] == []
    every = set(entering.values())
    assert {name: every & set(found) for name, found in steps.items() if name != "structural"} == {
        name: {step} for name, step in entering.items() if name != "structural"
    }


def test_a_norm_stands_where_the_model_has_it() -> None:
    post, pre = (names(arithmetic(loaded(name), TEXT)) for name in ("transformer", "pre-norm, swiglu, alibi"))
    assert post.index("norm") == post.index("residual") + 1 and "final_norm" not in post
    assert pre.index("norm_before") == pre.index("query") - 1 and pre[-2:] == ["final_norm", "logits"]
    assert "norm" not in pre and "norm_before" not in post


def test_formulas_have_biases_only_where_the_model_has_them() -> None:
    with_bias, without = (arithmetic(loaded(name), TEXT) for name in ("transformer", "t5"))
    formulas = [{step.name: step.words.formula for step in found.steps} for found in (with_bias, without)]
    assert formulas[0]["query"] == "q = W_q input + b_q" and formulas[1]["query"] == "q = W_q input"
    assert formulas[1]["feedforward_inner"] == "u = activation(W_1 input)" and formulas[1]["project"] == "o = W_o z"


# What is chosen


def test_by_default_the_strongest_head_of_the_last_layer_at_a_longer_word() -> None:
    model = loaded("transformer")
    found, (*_, last) = arithmetic(model, TEXT), model.inspector.maps()
    assert (found.part, found.layer) == ("cross", 2)
    target = model.inspector.texts["target"]
    assert target.words[target.word_ids[found.position]] == "café"
    assert found.head == int(last.weights[:, found.position].max(-1).values.argmax())
    assert found.reads == model.inspector.texts["read"].tokens[found.position] and found.predicts == target.tokens[found.position]
    assert repr(found) == (
        f"Arithmetic(translator, transformer: cross, layer 2, head {found.head}, position {found.position}, {found.reads!r}; "
        f"{len(found.steps)} steps, .json())"
    )


def test_by_default_a_gpt_shows_the_end_of_its_prompt_and_an_encoder_a_mask(tmp_path: Path) -> None:
    model = generator(tmp_path)
    found, prompt = arithmetic(model, "The quick"), len(model.prompt("The quick"))
    assert found.position == prompt - 1 and found.predicts == found.texts["source"].tokens[prompt]
    hidden = found["mask_causal"]["scores"] == -torch.inf
    assert hidden.tolist() == [n > found.position for n in range(len(hidden))]
    assert found.json()["steps"][names(found).index("mask_causal")]["values"][0]["values"][-1] is None
    masked = arithmetic(reader("bert", tmp_path), "Paris is the [MASK] of France.")
    assert masked.reads == "[MASK]" and masked.predicts is None and masked.steps[-1].name == "logits_masked"


def test_what_a_model_does_not_have_is_refused_in_one_line() -> None:
    model = loaded("transformer")
    for choice, said in [
        (HeadChoice("both"), "no part 'both'; this model's attention has the parts encoder, decoder, cross; choose one of them"),
        (HeadChoice("cross", layer=3), "no layer 3; the cross attention has 3, counted from 0; choose 0 to 2"),
        (HeadChoice(layer=4, counted_from=1), "no layer 4; the cross attention has 3, counted from 1; choose 1 to 3"),
        (HeadChoice(head=-1), "no head -1; the cross attention has 2, counted from 0; choose 0 to 1"),
        (HeadChoice(position=99), "no position 99; the text that attends (target) has"),
        (HeadChoice(head=1.5), "no head 1.5"),  # type: ignore[arg-type]
        (HeadChoice(head=True), "no head True"),
    ]:
        with pytest.raises(ConfigError) as raised:
            arithmetic(model, TEXT, None, choice)
        assert said in str(raised.value)
    with pytest.raises(ConfigError, match="the cross attention has one, counted from 0; choose 0"):
        arithmetic(loaded("rnn"), TEXT, None, HeadChoice(head=1))
    with pytest.raises(ConfigError, match="this model has no attention to words"):
        arithmetic(build_translator("none", {**MORE_TRANSLATORS["general"], "attention": "none"}), TEXT, TARGET)
    with pytest.raises(ConfigError, match=r"must end with \.html or \.json"):
        arithmetic(model, TEXT).save("page.txt")


@torch.no_grad()
def test_a_model_is_as_before_afterwards() -> None:
    inspector = loaded("transformer").inspector
    before = inspector.logits()
    arithmetic(Loaded(inspector), TEXT)
    assert torch.equal(before, inspector.logits())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in inspector.network.modules())


def test_calls_of_other_threads_are_left_out() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with traced(network) as trace:
        thread = Thread(target=network, args=(torch.ones(1, 2),))
        thread.start()
        thread.join()
        network(torch.zeros(1, 2))
    assert [(call.name, bool(call.inputs[0].any())) for call in trace] == [("", False), ("0", False)]
