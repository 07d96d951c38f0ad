"""The predictions of each layer: the last are the model's own to the bit, those before are the output layer's on each state."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from encoder_runs import randomised, write_model
from inspected_models import SIZE, TEXT, TRANSLATORS, generator, reader, tokenizer, translator
from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import Rows, padded_rows
from qkv.inference.predictors import make_predictor
from qkv.inference.text_generator import load_text_generator
from qkv.lens import layer_predictions
from qkv.lens.layer_predictions import layer_logits
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.parts.two_stream import with_summary_last

MASKED = "The [MASK] brown fox jumps over the [MASK]."
CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-5}


def rows_of(ids: list[int]) -> Rows:
    values = torch.tensor([ids])
    return padded_rows(values, torch.ones_like(values, dtype=torch.bool))


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_gpt(norm: str, tmp_path: Path) -> None:
    loaded = generator(tmp_path)
    if norm == "post":
        c = GptConfig(**SIZE, layers=3, max_positions=60, norm="post")
        model = randomised(ModelWithHeads(Gpt(c, len(tokenizer())), ()))
        run = write_model(tmp_path / "post", model, c.model_dump(mode="json"), tokenizer(), objective="causal")
        loaded = load_text_generator(run, "cpu")
    gpt: Any = loaded.causal_lm.gpt
    rows = rows_of(loaded.prompt(TEXT))
    logits, own = layer_logits(make_predictor(loaded, TEXT))
    assert torch.equal(logits[-1], gpt.logits(gpt(rows))[0]) and torch.equal(own, logits[-1])
    _, *states = gpt.each_layer(rows)
    for number, state in enumerate(states[:-1]):
        torch.testing.assert_close(logits[number], gpt.logits(gpt.norm(state))[0], **CLOSE)
    assert not torch.allclose(logits[0], logits[-1], atol=0.01)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "albert", "electra", "ernie", "xlnet"])
def test_encoders(name: str, tmp_path: Path) -> None:
    head = "language_model" if name == "xlnet" else "masked"
    loaded = reader(name, tmp_path, (head,))
    encoder: Any = loaded.fill_model.encoder
    rows = rows_of(loaded.masked(MASKED))
    masked = rows.ids == loaded.mask_id
    logits, own = layer_logits(make_predictor(loaded, MASKED))
    expected = loaded.fill_model.heads[head](encoder.states_at_masked(rows, masked))
    assert torch.equal(logits[-1], expected) and torch.equal(own, expected)
    states: list[Tensor]
    if name == "xlnet":  # its second stream, at all positions
        moved, segment, source = with_summary_last(rows, None)
        everywhere = torch.arange(moved.ids.size(1))[None]
        last = masked.gather(1, source)
        streams = encoder._layers(moved, segment, last.long(), everywhere)
        states = [g[last] for _, g in streams][1:]
    else:
        states = [state[masked] for state in encoder.each_layer(rows)][1:]
    for number, state in enumerate(states):
        torch.testing.assert_close(logits[number], loaded.fill_model.heads[head](state), **CLOSE)
    shown = qkv.layers(loaded, MASKED, top=2).json()
    assert [shown["source"][position] for position in shown["positions"]] == ["[MASK]"] * 2
    for place, words in enumerate(loaded.fill([MASKED], top=2)[0]):
        assert [value for _, value in shown["top"][-1][place]] == pytest.approx([word.probability for word in words], abs=1e-4)
        assert shown["top"][-1][place][0] == [shown["answers"][place], shown["probability"][-1][place]]
        assert shown["rank"][-1][place] == 1


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "pre-norm", "t5", "convolution", "unilm"])
def test_translators(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"kind": "transformer", **SIZE, "encoder_layers": 2, "decoder_layers": 3, "norm": "pre", "tied": "none"}
    monkeypatch.setitem(TRANSLATORS, "pre-norm", more)
    loaded = translator(name)
    inspector: Any = loaded.inspect(TEXT)
    logits, own = layer_logits(make_predictor(loaded, TEXT))
    assert torch.equal(own, logits[-1])
    if name == "unilm":  # one pass for each token, while ours has a row for each
        torch.testing.assert_close(own, inspector.logits(), **CLOSE)
    else:
        assert torch.equal(own, inspector.network.logits(inspector.network(inspector.source, inspector.read))[0])
    shown = qkv.layers(loaded, TEXT).json()
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["answers"] == inspector.texts["target"].tokens
    score = own.log_softmax(-1)[torch.arange(len(own)), inspector.texts["target"].ids]
    torch.testing.assert_close(torch.tensor(shown["probability"][-1]), score.exp(), rtol=0, atol=1e-4)
    ranks = (own > own[torch.arange(len(own)), inspector.texts["target"].ids][:, None]).sum(-1) + 1
    assert shown["rank"][-1] == ranks.tolist()
    assert len(shown["layers"]) == len(shown["top"]) == 3
    given = qkv.layers(loaded, TEXT, "Le café")
    assert given.answers == [*tokenizer().pieces(tokenizer().encode("Le café")), "</s>"]


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = reader("bert", tmp_path)
    for arguments, options, said in [
        ((translator("rnn"), TEXT), {}, "do not add to one state of each token"),
        ((bert, TEXT), {}, r"there is no \[MASK\]"),
        ((bert, MASKED, "a"), {}, "takes no target"),
        ((bert, MASKED), {"top": 0}, "from 1 to 100, got 0"),
        ((3, MASKED), {}, "layers takes the folder of a run or a loaded run, got int"),
    ]:
        with pytest.raises((ConfigError, DataError), match=said):
            qkv.layers(*arguments, **options)  # type: ignore[arg-type]
    monkeypatch.setattr(layer_predictions, "MAX_LOGITS", 100)
    with pytest.raises(DataError, match="100 can be computed; shorten the text"):
        qkv.layers(bert, MASKED)
