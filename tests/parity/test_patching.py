"""Patching an imported GPT-2 gives the grids that nnsight computes on transformers' model with the same weights."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

import qkv
from qkv.interop.huggingface.runs import import_huggingface

transformers = pytest.importorskip("transformers")
os.environ["NNSIGHT_CONFIG"] = str(Path(__file__).with_name("nnsight.yaml"))
nnsight = pytest.importorskip("nnsight")

TEXTS = ("the animal was too tired to cross the", "the animal was too wide to cross the")
CHANGED = 4  # the token in which they differ
HEADS, LAYERS = 4, 2
CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-4}


@torch.no_grad()
def write_gpt2(folder: Path) -> Any:
    """Write a GPT-2 with random weights and a tokenizer of whole words; return the model."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator([*TEXTS] * 9, trainer)
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    shape = {"n_embd": 24, "n_head": HEADS, "n_layer": LAYERS, "n_positions": 40}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=library.get_vocab_size(), **shape, **ends)).eval()
    torch.manual_seed(8)
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if "ln" in name and "weight" in name else 0.0, 0.3)
    model.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return model


@torch.no_grad()
def test_both_grids_are_those_of_nnsight(tmp_path: Path) -> None:
    model = write_gpt2(tmp_path / "theirs")
    import_huggingface(tmp_path / "theirs", tmp_path / "run")
    generator = qkv.load(tmp_path / "run", "cpu")
    clean, other = (torch.tensor([generator.prompt(text)]) for text in TEXTS)  # type: ignore[union-attr]
    length = clean.size(1)
    view = qkv.patch(generator, *TEXTS)
    assert view.json()["differs"] == [CHANGED]
    at_word = qkv.patch(generator, *TEXTS, position=CHANGED)
    traced: Any = nnsight.NNsight(model)
    states: list[Any] = []
    outputs: list[Any] = []
    with traced.trace(input_ids=clean):
        for layer in range(LAYERS):
            outputs.append(nnsight.save(traced.transformer.h[layer].attn.c_proj.input))
            states.append(nnsight.save(traced.transformer.h[layer].output))

    def difference(logits: Tensor) -> float:
        return float(logits[0, -1, view.answer] - logits[0, -1, view.instead])

    before, after = (difference(model(ids).logits) for ids in (other, clean))
    assert view.differences == pytest.approx({"clean": after, "corrupted": before}, abs=1e-4)
    assert abs(after - before) > 0.5  # a smaller difference would enlarge rounding
    assert view.answer == int(model(clean).logits[0, -1].argmax())

    def share(logits: Tensor) -> float:
        return (difference(logits) - before) / (after - before)

    heads = torch.zeros(2, LAYERS, HEADS)
    positions = torch.zeros(LAYERS, length)
    width = 24 // HEADS
    for layer in range(LAYERS):
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            for which, where in enumerate((slice(None), slice(CHANGED, CHANGED + 1))):
                with traced.trace(input_ids=other):
                    traced.transformer.h[layer].attn.c_proj.input[:, where, part] = outputs[layer][:, where, part]
                    logits = nnsight.save(traced.lm_head.output)
                heads[which, layer, head] = share(logits)
        for position in range(length):
            with traced.trace(input_ids=other):
                traced.transformer.h[layer].output[:, position] = states[layer][:, position]
                logits = nnsight.save(traced.lm_head.output)
            positions[layer, position] = share(logits)
    torch.testing.assert_close(torch.stack([row.values for row in view.heads]), heads[0], **CLOSE)
    torch.testing.assert_close(torch.stack([row.values for row in at_word.heads]), heads[1], **CLOSE)
    torch.testing.assert_close(torch.stack([row.values for row in view.states]), positions, **CLOSE)
    assert heads[1].abs().max() > 0.05 and positions[0, CHANGED].abs() > 0.05  # something was compared
