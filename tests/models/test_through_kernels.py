"""A whole model through our GPU kernels, interpreted step by step, against the same model in plain torch."""

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interpreted_kernels import speed_up_interpreter
from qkv.base import graphs
from qkv.base.rows import Rows
from qkv.data.batches import make_batch
from qkv.models.bert import Bert, BertConfig
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.models.t5 import T5, T5Config, T5Encoder
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts import kernels
from qkv.parts.adapters import with_adapters
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.encoder import Encoder
from qkv.parts.encoder_decoder import EncoderDecoder
from qkv.parts.model_config import AdapterConfig
from qkv.parts.two_stream import stream_masks
from qkv.training.checkpoints import named_weights

if importlib.util.find_spec("triton") is None or torch.cuda.is_available():
    pytest.skip("this is for Triton's interpreter, where there is no GPU", allow_module_level=True)

speed_up_interpreter()


def texts(rng: np.random.Generator, counts: tuple[int, ...] = (1, 3)) -> list[list[np.ndarray]]:
    """Texts of a few rows, by their number in each: the interpreter takes long for a row."""
    return [[rng.integers(4, 77, rng.integers(2, 9)) for _ in range(count)] for count in counts]


def loss_and_gradients(model: EncoderDecoder, width: int) -> tuple[float, dict[str, Tensor]]:
    rng = np.random.default_rng(3)
    batch = make_batch(texts(rng), texts(rng), (width, width), eos=3)
    model.zero_grad()
    loss = Translation(TranslationConfig(), bos=2).loss(model, *batch.inputs)
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("width", "heads", "row", "options"),
    [
        (24, 3, 32, {}),
        (48, 2, 48, {"activation": "gelu"}),
        (40, 5, 32, {"activation": "swiglu", "norm": "pre"}),
        (24, 2, 136, {"tied": "target"}),
        (24, 2, 144, {"tied": "none", "norm": "pre"}),
        (24, 3, 32, {"positions": "rotary"}),
        (24, 3, 32, {"positions": "alibi"}),
        (24, 3, 32, {"positions": "relative"}),
    ],
)
def test_loss_and_gradients_are_the_same(
    monkeypatch: pytest.MonkeyPatch, width: int, heads: int, row: int, options: dict[str, str]
) -> None:
    shape = {
        "width": width,
        "feedforward": 2 * width - 8,
        "heads": heads,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.0,
    }
    check_translator(monkeypatch, Transformer(TransformerConfig(**shape, **options), 77, 77).train(), row)


@pytest.mark.parametrize(("row", "activation"), [(32, "geglu"), (72, "swiglu"), (144, "relu")])
def test_loss_and_gradients_of_a_t5_are_the_same(monkeypatch: pytest.MonkeyPatch, row: int, activation: Any) -> None:
    """Its heads are wider than the model has room for, and its bias is learned by both layers."""
    shape = {"width": 24, "feedforward": 40, "heads": 3, "head_width": 16, "encoder_layers": 2, "decoder_layers": 2}
    model = T5(T5Config(**shape, dropout=0.0, activation=activation, buckets=8, max_distance=6), 77, 77).train()
    attend, biased = kernels.attention.attend_self, []
    monkeypatch.setattr(kernels.attention, "attend_self", lambda *inputs: biased.append(len(inputs) > 3) or attend(*inputs))
    check_translator(monkeypatch, model, row)
    assert biased == [True] * 4


SMALL: dict[str, Any] = {"width": 24, "feedforward": 40, "heads": 3, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}


@pytest.mark.parametrize(
    "model",
    [
        Transformer(TransformerConfig(**SMALL), 77, 77),
        Transformer(TransformerConfig(**SMALL, norm="pre"), 77, 77),
        T5(T5Config(**SMALL, activation="geglu"), 77, 77),
    ],
    ids=["post-norm", "pre-norm", "t5"],
)
def test_gradients_of_adapters_are_the_same(monkeypatch: pytest.MonkeyPatch, model: EncoderDecoder) -> None:
    """Frozen weights have none, so the kernel for their gradients is not called."""
    adapted = with_adapters(model.train(), AdapterConfig(rank=3))
    for name, weight in named_weights(adapted).items():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(weight, std=0.1)
    monkeypatch.setattr(kernels.linear, "linear", None)
    check_translator(monkeypatch, adapted, 32)
    assert {name for name, p in adapted.named_parameters() if p.grad is not None} == named_weights(adapted).keys()


def check_translator(monkeypatch: pytest.MonkeyPatch, model: EncoderDecoder, row: int) -> None:
    plain, wanted = loss_and_gradients(model, row)
    called = []
    monkeypatch.setattr(kernels, "usable", lambda x: not called.append(x.shape))
    loss, found = loss_and_gradients(model, row)
    assert called, "the kernels were not asked for"
    assert loss == pytest.approx(plain, rel=1e-5)
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)


def steps(model: Transformer) -> Tensor:
    """Return the logits of some steps, with hypotheses that are reordered."""
    rng = torch.Generator().manual_seed(1)
    ids, words = torch.randint(4, 77, (2, 3), generator=rng), torch.randint(4, 77, (7, 2), generator=rng)
    state, found = PreparedModel(model).start(ids, ids > 0, max_length=20), []
    for step, newest in enumerate(words):
        found.append(model.step(newest, state))
        state.regroup(torch.tensor([[1 - step % 2], [step % 2]]), None)
    return torch.stack(found)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", "relative", "rotary", "alibi"])
def test_steps_are_the_same(monkeypatch: pytest.MonkeyPatch, positions: Any) -> None:
    shape = {"width": 32, "feedforward": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_distance": 2}
    model = Transformer(TransformerConfig(**shape, positions=positions), 77, 77).eval()
    wanted, look = steps(model), kernels.decode_step.attend_cached
    called: list[int] = []
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", lambda function, *inputs: function)
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    monkeypatch.setattr(kernels.decode_step, "attend_cached", lambda *inputs: called.append(1) or look(*inputs))
    torch.testing.assert_close(steps(model), wanted, rtol=0, atol=1e-5)
    assert len(called) == (6 if positions in ("sinusoidal", "rotary") else 0)


def check_encoder(monkeypatch: pytest.MonkeyPatch, model: Encoder, row: int, tasks: int) -> None:
    rng = np.random.default_rng(3)
    rows = make_batch(texts(rng), texts(rng), (row, row), eos=3).inputs[0]
    rows = rows._replace(head=2 * (rows.position // 2))  # a tree, for models that read it
    segment, task = rows.position % 2, rows.text % tasks if tasks else None

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        known = model.train()(rows, segment, task)
        (known * torch.linspace(-1, 1, known.size(-1)) * (rows.text > 0)[..., None]).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    wanted = gradients()
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    found = gradients()
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
@pytest.mark.parametrize(("row", "positions"), [(32, 40), (48, 32)])
def test_gradients_of_an_encoder_are_the_same(monkeypatch: pytest.MonkeyPatch, activation: Any, row: int, positions: int) -> None:
    """Rows may also be wider than the longest text allowed."""
    shape = {"width": 24, "feedforward": 40, "heads": 3, "layers": 1, "dropout": 0.0}
    check_encoder(monkeypatch, Bert(BertConfig(**shape, activation=activation, max_positions=positions), 77), row, 0)


@pytest.mark.parametrize("positions", ["sinusoidal", "relative", "rotary", "alibi", "structural"])
def test_gradients_of_an_encoder_with_other_positions_are_the_same(monkeypatch: pytest.MonkeyPatch, positions: Any) -> None:
    shape = {"width": 24, "feedforward": 40, "heads": 3, "layers": 1, "dropout": 0.0, "max_distance": 2}
    check_encoder(monkeypatch, Bert(BertConfig(**shape, positions=positions), 77), 32, 0)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize(
    "attention", [{"radius": 3}, {"radius": 1, "global_tokens": 1, "random_blocks": 1, "block_size": 16}], ids=str
)
def test_gradients_of_an_encoder_with_a_pattern_are_the_same(
    monkeypatch: pytest.MonkeyPatch, attention: dict[str, Any], positions: Any
) -> None:
    shape: dict[str, Any] = {"width": 24, "feedforward": 40, "heads": 3, "layers": 1, "dropout": 0.0, "positions": positions}
    kind = {"kind": "bigbird" if "random_blocks" in attention else "window", **attention}
    check_encoder(monkeypatch, Bert(BertConfig(**shape, attention=kind), 77), 40, 0)


def test_gradients_of_an_encoder_with_tasks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ErnieConfig(width=24, feedforward=40, heads=3, layers=1, dropout=0.0, max_positions=40, task_types=3)
    check_encoder(monkeypatch, Ernie(config, 77), 32, 3)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("row", [32, 136])
def test_gradients_of_a_gpt_are_the_same(monkeypatch: pytest.MonkeyPatch, norm: Any, row: int) -> None:
    shape = {"width": 24, "feedforward": 40, "heads": 3, "layers": 1, "dropout": 0.0, "max_positions": row}
    check_encoder(monkeypatch, Gpt(GptConfig(**shape, norm=norm), 77), row, 0)


def test_gradients_of_a_t5_encoder_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    config = T5Config(width=24, feedforward=40, heads=3, head_width=16, encoder_layers=2, dropout=0.0, buckets=8, max_distance=6)
    check_encoder(monkeypatch, T5Encoder(config, 77), 32, 0)


def test_gradients_of_an_xlnet_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    check_encoder(monkeypatch, Xlnet(XlnetConfig(width=24, feedforward=40, heads=3, layers=1, dropout=0.0), 77), 32, 0)


@pytest.mark.parametrize("memory", [False, True])
def test_gradients_of_both_streams_of_an_xlnet_are_the_same(monkeypatch: pytest.MonkeyPatch, memory: bool) -> None:
    """Some tokens in a random order, as in pretraining; with a memory of the rows before."""
    model = Xlnet(XlnetConfig(width=24, feedforward=40, heads=3, layers=2, dropout=0.0), 77).train()
    rng = np.random.default_rng(3)
    rows = make_batch(texts(rng, (1, 2, 3)), texts(rng, (1, 2, 3)), (40, 40), eos=3).inputs[0]
    segment, cut = rows.position % 2, 16 if memory else 0
    before, here = (Rows(*(values[:, part] for values in rows[:3])) for part in (slice(cut), slice(cut, None)))
    rank = torch.randint(0, 5, here.ids.shape)
    columns = torch.rand(here.ids.shape).argsort(1)[:, :10]

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        past = model.both_streams(before, segment[:, :cut], keep=cut).memory if memory else None
        found = model.both_streams(here, segment[:, cut:], rank, columns, past)
        assert found.query is not None
        mask = stream_masks(here.text, segment[:, cut:], rank, columns, past)[1].mask
        seen = found.query[mask.any(-1)[:, 0] & (here.text.gather(1, columns) > 0)]  # nobody reads one that sees nothing
        assert 0 < len(seen) < columns.numel()
        shares = torch.linspace(-1, 1, 24)
        (seen * shares).sum().add((found.content * shares)[here.text > 0].sum()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    wanted = gradients()
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    found = gradients()
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)


def prompted(writer: CausalLM, lengths: list[int], piece: int | None = None) -> Tensor:
    """Return the logits of some steps after prompts, one of which is dropped on the way."""
    rng = torch.Generator().manual_seed(1)
    ids, words = torch.randint(4, 77, (3, 5), generator=rng), torch.randint(4, 77, (9, 3), generator=rng)
    keep, found = torch.arange(5) < torch.tensor(lengths)[:, None], []
    state = PreparedModel(writer).start(ids, keep, max_length=12, piece=piece)
    while not state.read_piece():
        pass
    for step, newest in enumerate(words):
        if step == 5:
            state.select(torch.tensor([2, 0]))
        found.append(writer.step(newest if step < 5 else newest[:2], state))
    return torch.cat(found)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 2, 4]], ids=["equal", "different"])
def test_steps_of_a_gpt_are_the_same(monkeypatch: pytest.MonkeyPatch, positions: Any, lengths: list[int]) -> None:
    torch.manual_seed(1)
    writer = CausalLM(
        Gpt(GptConfig(width=32, feedforward=32, heads=2, layers=2, max_positions=40, positions=positions), 77).eval()
    )
    wanted, look = prompted(writer, lengths), kernels.decode_step.attend_cached
    called: list[int] = []
    monkeypatch.setattr(graphs, "usable", lambda words: True)
    monkeypatch.setattr(graphs, "GraphedFunction", lambda function, *inputs: function)
    monkeypatch.setattr(kernels, "usable", lambda x: True)
    monkeypatch.setattr(kernels.decode_step, "attend_cached", lambda *inputs: called.append(1) or look(*inputs))
    equal = len(set(lengths)) == 1
    torch.testing.assert_close(prompted(writer, lengths, None if equal else 6), wanted, rtol=0, atol=1e-5)
    assert len(called) == (0 if positions == "alibi" else 16)  # eight steps after the one that reads the prompts
