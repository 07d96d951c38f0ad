"""The same weights in transformers' XLNet give the same outputs, with factorisation orders, targets, memory, padding
and heads.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from huggingface_networks import from_huggingface, read_huggingface, write_huggingface
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.folder.networks import SavedNetwork
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.parts.heads import ModelWithHeads
from qkv.parts.two_stream import Memory

transformers = pytest.importorskip("transformers")

VOCAB = 41
CLOSE = {"rtol": 0, "atol": 1e-5}
five_seeds = pytest.mark.parametrize("seed", range(5))


@torch.no_grad()
def randomised(model: Any) -> Any:
    """Randomise all weights; a bias of 0, for example, would hide mistakes."""
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if "norm" in name and "weight" in name else 0.0, 0.2)
    return model.eval()


def theirs(seed: int, end: str = "Model", **options: Any) -> Any:
    """Return a transformers model of a random shape."""
    rng = random.Random(seed)
    heads = rng.choice([1, 2, 4])
    shape = {
        "vocab_size": VOCAB,
        "d_model": heads * rng.choice([4, 6, 10]),
        "n_layer": rng.choice([1, 2, 4]),
        "n_head": heads,
        "d_inner": rng.choice([20, 32]),
        "ff_activation": rng.choice(["gelu", "relu", "gelu_new"]),
        "layer_norm_eps": rng.choice([1e-12, 1e-3]),
        "mem_len": rng.choice([None, 3, 9]),
    }
    torch.manual_seed(seed)
    return randomised(getattr(transformers, f"XLNet{end}")(transformers.XLNetConfig(**{**shape, **options})))


def read(model: Any) -> ModelWithHeads:
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    return from_huggingface(config, model.state_dict()).model()


def xlnet_of(model: Any) -> Xlnet:
    encoder = read(model).encoder
    assert isinstance(encoder, Xlnet)
    return encoder


class RandomTexts:
    """Random texts, one per padded row, with a factorisation order and the positions to predict."""

    def __init__(self, seed: int, rows: int = 3, width: int = 11, guessed: int = 4, all_ordered: bool = False):
        torch.manual_seed(100 + seed)
        self.ids, self.segment = torch.randint(0, VOCAB, (rows, width)), torch.randint(0, 3, (rows, width))
        self.keep = torch.arange(width) < torch.randint(guessed + 1, width + 1, (rows, 1))
        shortest = int(self.keep.sum(1).min())
        self.where = torch.stack([torch.randperm(shortest)[:guessed] for _ in range(rows)])
        self.rank = torch.zeros(rows, width).long().scatter(1, self.where, torch.arange(1, guessed + 1).expand(rows, -1))
        if all_ordered:
            # The first position attends to nothing and gets the mean over all positions; padding differs between the two
            # programs.
            self.keep[:] = True
            self.rank = torch.stack([torch.randperm(width) for _ in range(rows)])

    @property
    def rows(self) -> Rows:
        return padded_rows(self.ids, self.keep)

    def for_theirs(self) -> dict[str, Tensor]:
        guessed = torch.zeros_like(self.keep).scatter(1, self.where, True)
        own, other = self.rank[:, :, None], self.rank[:, None]
        hidden = torch.where(guessed[:, :, None], other >= own, other > own)
        mapping = torch.nn.functional.one_hot(self.where, self.ids.size(1))
        return {
            "input_ids": self.ids,
            "token_type_ids": self.segment,
            "attention_mask": self.keep.float(),
            "perm_mask": hidden.float(),
            "target_mapping": mapping.float(),
        }


def of_mems(mems: Any, text: int = 1) -> Memory:
    """Convert transformers' memory, (M, B, D) for each layer, to qkv's."""
    states = tuple(state.transpose(0, 1) for state in mems)
    every = torch.full(states[0].shape[:2], text)
    return Memory(states, every, torch.zeros_like(every))


@five_seeds
@torch.no_grad()
def test_every_layer_of_whole_texts(seed: int) -> None:
    model, drawn = theirs(seed), RandomTexts(seed)
    given = {name: drawn.for_theirs()[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    wanted = model(**given, output_hidden_states=True).hidden_states
    found = [h for h, _ in xlnet_of(model)._layers(drawn.rows, drawn.segment)]
    assert len(found) == len(wanted) == model.config.n_layer + 1
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine[drawn.keep], other[drawn.keep], **CLOSE)


@five_seeds
@pytest.mark.parametrize("all_ordered", [False, True])
@torch.no_grad()
def test_both_streams_with_an_order(seed: int, all_ordered: bool) -> None:
    model, drawn = theirs(seed + 20), RandomTexts(seed, all_ordered=all_ordered)
    made = model(**drawn.for_theirs(), output_hidden_states=True)
    found = xlnet_of(model).both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where)
    assert found.query is not None
    content, query = made.hidden_states[-2:]  # transformers alternates content and query states
    torch.testing.assert_close(found.query, made.last_hidden_state, **CLOSE)
    torch.testing.assert_close(found.query, query, **CLOSE)
    torch.testing.assert_close(found.content[drawn.keep], content[drawn.keep], **CLOSE)


@five_seeds
@torch.no_grad()
def test_three_rows_one_after_another_with_a_memory(seed: int) -> None:
    model = theirs(seed + 40)
    xlnet, keep = xlnet_of(model), model.config.mem_len or 100
    mems, memory = None, None
    for number in range(3):
        drawn = RandomTexts(10 * seed + number, width=7, guessed=3)
        drawn.keep[:] = True  # transformers' memory has no padding mask
        drawn.segment[:] = 0
        made = model(**drawn.for_theirs(), mems=mems, use_mems=True)
        found = xlnet.both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where, memory, keep)
        before, mems, memory = memory, made.mems, found.memory
        assert found.query is not None and memory is not None and memory.text.shape == mems[0].shape[1::-1]
        guessed, same = xlnet.query_stream(drawn.rows, drawn.segment, drawn.rank, drawn.where, before, keep)
        assert same is not None and torch.equal(same.states[-1], memory.states[-1])
        torch.testing.assert_close(guessed, found.query, **CLOSE)
        torch.testing.assert_close(found.query, made.last_hidden_state, **CLOSE)
        for mine, other in zip(memory.states, mems, strict=True):
            torch.testing.assert_close(mine, other.transpose(0, 1), **CLOSE)


@torch.no_grad()
def test_a_memory_that_is_given() -> None:
    model, drawn = theirs(3), RandomTexts(3)
    mems = [torch.randn(6, 3, model.config.d_model) for _ in range(model.config.n_layer)]
    made = model(**drawn.for_theirs(), mems=mems)
    found = xlnet_of(model).both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where, of_mems(mems))
    assert found.query is not None
    torch.testing.assert_close(found.query, made.last_hidden_state, **CLOSE)
    other = xlnet_of(model).both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where, of_mems(mems, text=2))
    plain = xlnet_of(model).both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where)
    assert other.query is not None and plain.query is not None
    torch.testing.assert_close(other.query, plain.query, **CLOSE)  # memory of another text is masked


@five_seeds
@torch.no_grad()
def test_guesses_of_words(seed: int) -> None:
    model, drawn = theirs(seed + 60, end="LMHeadModel"), RandomTexts(seed)
    mine = read(model)
    found = mine.encoder.both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where)  # type: ignore[operator]
    torch.testing.assert_close(mine.heads["language_model"](found.query), model(**drawn.for_theirs()).logits, **CLOSE)


@torch.no_grad()
def test_heads_over_texts_and_tokens() -> None:
    ids = torch.randint(0, VOCAB, (3, 9), generator=torch.Generator().manual_seed(1))
    segment = torch.tensor([0] * 4 + [1] * 4 + [2]).expand(3, -1)
    # qkv puts the summary token first, without a segment of its own.
    rows = padded_rows(ids.roll(1, 1), torch.ones(3, 9).bool())
    parts = segment.roll(1, 1).masked_fill(torch.arange(9) == 0, 0)
    for seed, (end, head) in enumerate(
        {"ForSequenceClassification": "classes", "ForTokenClassification": "tags", "ForQuestionAnsweringSimple": "span"}.items()
    ):
        options = {} if head == "span" else {"num_labels": 5}
        model = theirs(seed, end=end, **options)
        made, mine = model(input_ids=ids, token_type_ids=segment), read(model)
        hidden = mine.encoder(rows, parts)
        if head == "classes":
            torch.testing.assert_close(mine.heads[head](mine.heads["pooler"](hidden[:, 0])), made.logits, **CLOSE)
        elif head == "tags":
            torch.testing.assert_close(mine.heads[head](hidden), made.logits.roll(1, 1), **CLOSE)
        else:
            for one, other in zip(mine.heads[head](hidden), (made.start_logits, made.end_logits), strict=True):
                torch.testing.assert_close(one, other.roll(1, 1), **CLOSE)


@pytest.mark.parametrize(
    ("heads", "name"),
    [
        ((), "XLNetModel"),
        (("language_model",), "XLNetLMHeadModel"),
        (("pooler", "classes"), "XLNetForSequenceClassification"),
        (("tags",), "XLNetForTokenClassification"),
        (("span",), "XLNetForQuestionAnsweringSimple"),
    ],
)
@torch.no_grad()
def test_a_folder_of_ours_loaded_by_transformers(heads: tuple[str, ...], name: str, tmp_path: Path) -> None:
    c = XlnetConfig(width=24, feedforward=40, heads=2, layers=2, dropout=0.0, epsilon=1e-3, activation="gelu-tanh")
    checkpoint = SavedNetwork(c, randomised(ModelWithHeads(Xlnet(c, VOCAB), heads, 3)).weights())
    write_huggingface(checkpoint, tmp_path / "hf")
    model, about = getattr(transformers, name).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"]
    drawn = RandomTexts(1)
    encoder: Any = model.eval() if name == "XLNetModel" else model.eval().transformer
    found = xlnet_of_checkpoint(checkpoint).both_streams(drawn.rows, drawn.segment, drawn.rank, drawn.where)
    assert found.query is not None
    torch.testing.assert_close(found.query, encoder(**drawn.for_theirs()).last_hidden_state, **CLOSE)
    back = read_huggingface(tmp_path / "hf")
    assert back.config == c and back.weights.keys() == checkpoint.weights.keys()
    for part, weights in checkpoint.weights.items():
        assert weights.keys() == back.weights[part].keys()
        assert all(torch.equal(weight, back.weights[part][key]) for key, weight in weights.items())


def xlnet_of_checkpoint(checkpoint: SavedNetwork) -> Xlnet:
    encoder = checkpoint.model().encoder
    assert isinstance(encoder, Xlnet)
    return encoder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_type": "uni"}, "attn_type='uni' in config.json is not supported by qkv's xlnet; it takes only 'bi'"),
        ({"clamp_len": 4}, "clamp_len=4 in config.json is not supported by qkv's xlnet; it takes only -1"),
        ({"ff_activation": "silu"}, "ff_activation='silu' in config.json is an activation that qkv does not have"),
        ({"architectures": ["XLNetForMultipleChoice"]}, "architecture XLNetForMultipleChoice in config.json is not one of XLNet"),
        ({"d_inner": 33}, "they do not belong together"),
        ({"n_layer": 5}, "the weights lack encoder.layers.1."),
    ],
)
def test_what_cannot_be_read(change: dict[str, Any], message: str) -> None:
    model = theirs(0, n_layer=1, d_inner=20)
    with pytest.raises((ConfigError, CheckpointError)) as refused:
        from_huggingface({**model.config.to_dict(), **change}, model.state_dict())
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_weights_that_are_none_of_an_xlnet() -> None:
    model = theirs(0, end="LMHeadModel")
    weights = {**model.state_dict(), "lm_loss.weight": torch.zeros(VOCAB, model.config.d_model)}
    with pytest.raises(CheckpointError, match=r"lm_loss.weight is not the word embedding"):
        from_huggingface(model.config.to_dict(), weights)
    with pytest.raises(CheckpointError, match="strange and 0 more weights have no counterpart in qkv's xlnet"):
        from_huggingface(model.config.to_dict(), {**model.state_dict(), "strange": torch.zeros(1)})
