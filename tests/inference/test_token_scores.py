"""Log-probabilities of texts against plain sums over their tokens, for every kind of model, in packed rows too."""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.base.characters import PADDING, character_ids
from qkv.base.errors import ConfigError
from qkv.base.rows import IGNORE_INDEX, Rows, padded_rows
from qkv.inference.text_scores import scorer_for
from qkv.models import FAMILIES
from qkv.parts.heads import ModelWithHeads
from qkv.parts.loss import log_probabilities
from qkv.parts.modes import LEFT_TO_RIGHT
from qkv.parts.token_scores import ControlTokens, TokenScores

PAD, UNK, BOS, EOS, MASK = range(5)
VOCAB = 30
CONTROL = ControlTokens(MASK, UNK, (PAD, BOS, EOS))
TEXTS = [[7, 9, 7, 20, 11], [12], [5, 6, 5, 6, 5, 6, 29, 8]]
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2, "layers": 2, "max_positions": 16}
OWN: dict[str, dict[str, Any]] = {
    "elmo": {
        "width": 16,
        "lstm_width": 24,
        "layers": 2,
        "character_width": 4,
        "filters": [[1, 8], [2, 8]],
        "highway_layers": 1,
        "max_characters": 8,
        "output_words": 25,
    },
    "albert": {"embedding_width": 8},
}
HEADS = {"gpt": (), "xlnet": ("language_model",), "elmo": ("bidirectional",)}


@pytest.fixture
def model_of() -> Callable[[str], ModelWithHeads]:
    def make(kind: str) -> ModelWithHeads:
        torch.manual_seed(3)
        shape = OWN[kind] if kind == "elmo" else SHAPE | OWN.get(kind, {})
        encoder: Any = FAMILIES[kind].network(FAMILIES[kind].config(**shape), VOCAB)  # type: ignore[misc]
        model = ModelWithHeads(encoder, HEADS.get(kind, ("masked",)))
        for parameter in filter(torch.is_floating_point, model.parameters()):
            torch.nn.init.normal_(parameter, std=0.4)
        if kind == "elmo":
            encoder.embedding.character_embedding.weight.data[PADDING] = 0  # as it always is
            encoder.embedding.token_embedding.set_vocabulary(
                character_ids([*range(5), *(chr(60 + number) * 2 for number in range(5, VOCAB))], 8)
            )
        return model.eval()

    return make


def rows_of(texts: list[list[int]], end: bool = True) -> Rows:
    framed = [[BOS, *ids, *[EOS] * end] for ids in texts]
    ids = torch.full((len(framed), max(map(len, framed))), PAD)
    for row, text in zip(ids, framed, strict=True):
        row[: len(text)] = torch.tensor(text)
    return padded_rows(ids, ids != PAD)


def logs_at(model: ModelWithHeads, known: Tensor, answer: int) -> float:
    """Of one place. known (D,)."""
    if not model.heads:
        scores = model.encoder.logits(known)  # type: ignore[operator]
    elif "bidirectional" in model.heads:
        scores, answer = model.heads["bidirectional"](known), answer if answer < 25 else UNK
    else:
        scores = next(iter(model.heads.values()))(known)
    return float(scores.log_softmax(-1)[answer])


def gpt_left(model: ModelWithHeads, ids: list[int], position: int) -> float:
    return logs_at(model, model.encoder(rows_of([ids[:position]], end=False))[0, -1], ids[position])


def masked(model: ModelWithHeads, ids: list[int], position: int) -> float:
    rows = rows_of([[*ids[:position], MASK, *ids[position + 1 :]]])
    return logs_at(model, model.encoder(rows)[0, position + 1], ids[position])


def unilm_left(model: ModelWithHeads, ids: list[int], position: int) -> float:
    """A text that ends there, read from left to right."""
    rows = rows_of([[*ids[:position], MASK]], end=False)
    return logs_at(model, model.encoder(rows, torch.full_like(rows.ids, LEFT_TO_RIGHT))[0, -1], ids[position])


def xlnet_guess(model: ModelWithHeads, ids: list[int], rank: list[int], position: int, answer: int) -> float:
    """One place of a text with its end and then its summary, which everyone sees."""
    row = torch.tensor([[*ids, EOS, BOS]])
    rows, segment = padded_rows(row, torch.ones_like(row).bool()), torch.tensor([[0] * (len(ids) + 1) + [2]])
    encoder: Any = model.encoder
    known, _ = encoder.query_stream(rows, segment, torch.tensor([[*rank, 0, 0]]), torch.tensor([[position]]))
    return logs_at(model, known[0, 0], answer)


def xlnet_left(model: ModelWithHeads, ids: list[int], position: int) -> float:
    """In the order of the text; what comes later may be anything."""
    told = [*ids[:position], *[MASK] * (len(ids) - position)]
    return xlnet_guess(model, told, [*range(1, len(ids) + 1)], position, ids[position])


def xlnet_each(model: ModelWithHeads, ids: list[int], position: int) -> float:
    told = [*ids[:position], MASK, *ids[position + 1 :]]
    return xlnet_guess(model, told, [int(other == position) for other in range(len(ids))], position, ids[position])


def elmo_left(model: ModelWithHeads, ids: list[int], position: int) -> float:
    *_, (ahead, _) = model.encoder.both_directions(rows_of([ids[:position]], end=False))  # type: ignore[operator]
    return logs_at(model, ahead[0, -1], ids[position])


def elmo_each(model: ModelWithHeads, ids: list[int], position: int) -> float:
    row = torch.tensor([[*ids[position + 1 :], EOS]])
    *_, (_, back) = model.encoder.both_directions(padded_rows(row, torch.ones_like(row).bool()))  # type: ignore[operator]
    return (elmo_left(model, ids, position) + logs_at(model, back[0, 0], ids[position])) / 2


PLAIN: dict[tuple[str, Any], Callable[[ModelWithHeads, list[int], int], float]] = {
    ("gpt", "left"): gpt_left,
    ("bert", "each"): masked,
    ("albert", "each"): masked,
    ("unilm", "each"): masked,
    ("unilm", "left"): unilm_left,
    ("xlnet", "left"): xlnet_left,
    ("xlnet", "each"): xlnet_each,
    ("elmo", "left"): elmo_left,
    ("elmo", "each"): elmo_each,
}


@torch.no_grad()
def told_of(model: ModelWithHeads, kind: str, how: Any, rows: Rows) -> TokenScores:
    return scorer_for(kind, how)(model, rows, CONTROL)


@pytest.mark.parametrize(("kind", "how"), PLAIN, ids=str)
def test_scores_equal_plain_sums(model_of: Callable[[str], ModelWithHeads], kind: str, how: Any) -> None:
    model = model_of(kind)
    found = told_of(model, kind, how, rows_of(TEXTS, end=kind != "gpt")).logs.sum(1)
    with torch.no_grad():
        wanted = [sum(PLAIN[kind, how](model, ids, position) for position in range(len(ids))) for ids in TEXTS]
    assert found.tolist() == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("kind", ["unilm", "xlnet", "gpt"])
def test_from_left_to_right_texts_of_a_row_do_not_see_each_other(model_of: Callable[[str], ModelWithHeads], kind: str) -> None:
    model, end = model_of(kind), kind != "gpt"
    framed = [[BOS, *ids, *[EOS] * end] for ids in TEXTS]
    ids = torch.tensor([[*chain(*framed), PAD, PAD]])
    text = torch.tensor([[number for number, one in enumerate(framed, 1) for _ in one] + [0, 0]])
    position = torch.tensor([[number for one in framed for number in range(len(one))] + [0, 0]])
    packed = told_of(model, kind, "left", Rows(ids, text, position))
    single = told_of(model, kind, "left", rows_of(TEXTS, end))
    torch.testing.assert_close(packed.logs.sum(), single.logs.sum(), atol=1e-4, rtol=1e-5)
    assert sorted(packed.labels[packed.labels != IGNORE_INDEX].tolist()) == sorted(chain(*TEXTS))


@pytest.mark.parametrize("kind", ["gpt", "unilm"])
def test_from_left_to_right_the_probabilities_of_all_texts_sum_to_one(
    model_of: Callable[[str], ModelWithHeads], kind: str
) -> None:
    """The probabilities of all texts of one token, control tokens too, sum to 1."""
    model = model_of(kind)
    control = CONTROL._replace(special=())
    ids = torch.tensor([[BOS, token] for token in range(VOCAB)])
    rows = padded_rows(ids, torch.ones_like(ids).bool())
    with torch.no_grad():
        told = scorer_for(kind, "left")(model, rows, control)
    assert float(told.logs[:, 0 if kind == "gpt" else 1].exp().sum()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("kind", "how", "other"), [("gpt", "each", "left"), ("bert", "left", "each")])
def test_an_unsupported_direction_is_refused(kind: str, how: Any, other: str) -> None:
    with pytest.raises(ConfigError, match=f"how={how}; set how={other}"):
        scorer_for(kind, how)
    assert scorer_for(kind, None) is scorer_for(kind, other)  # type: ignore[arg-type]


def test_log_probabilities_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    hidden, weight, bias = torch.randn(7, 4), torch.randn(9, 4), torch.randn(9)
    answer = torch.tensor([0, 8, IGNORE_INDEX, 3, 3, 1, 2])
    whole = log_probabilities(hidden, weight, answer, bias)
    monkeypatch.setitem(__import__("qkv.parts.loss", fromlist=["PIECE"]).PIECE, "cpu", 20)
    torch.testing.assert_close(log_probabilities(hidden, weight, answer, bias), whole)
    assert whole[2] == 0
    assert float(whole[1]) == pytest.approx(math.log((hidden @ weight.T + bias).softmax(-1)[1, 8]), abs=1e-5)
