"""Heads: what they compute, and that the token embedding's weights are saved once."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.rows import IGNORE_INDEX
from qkv.models.bert import Bert, BertConfig
from qkv.parts.heads import Classifier, MaskedLanguageModelHead, ModelWithHeads, Pooler, ReplacedTokenHead, SpanHead, make_head
from qkv.parts.loss import cross_entropy_sum

VOCAB, WIDTH = 13, 8
TINY = BertConfig(width=WIDTH, feedforward=12, heads=2, layers=1, max_positions=20)


@torch.no_grad()
def randomised(head: nn.Module) -> nn.Module:
    for parameter in head.parameters():
        parameter += 0.3 * torch.randn_like(parameter)
    return head.eval()


@pytest.mark.parametrize("narrow", [WIDTH, 5])
def test_masked_tokens(narrow: int) -> None:
    words = nn.Embedding(VOCAB, narrow)
    head = randomised(MaskedLanguageModelHead(WIDTH, words, "gelu", 1e-12))
    hidden = torch.randn(4, WIDTH)
    inside = F.gelu(hidden @ head.dense.weight.T + head.dense.bias)
    normed = F.layer_norm(inside, (narrow,), head.norm.weight, head.norm.bias, 1e-12)
    torch.testing.assert_close(head(hidden), normed @ words.weight.T + head.bias)


def test_its_loss_can_be_had_without_all_scores() -> None:
    words = nn.Embedding(VOCAB, 5)
    head = randomised(MaskedLanguageModelHead(WIDTH, words, "gelu", 1e-12))
    hidden, answer = torch.randn(9, WIDTH), torch.randint(0, VOCAB, (9,))
    answer[3] = IGNORE_INDEX
    fused = cross_entropy_sum(head.features(hidden), head.weight, answer, bias=head.bias)
    plain = F.cross_entropy(head(hidden), answer, ignore_index=IGNORE_INDEX, reduction="sum")
    torch.testing.assert_close(fused, plain)
    learned = [words.weight, *head.parameters()]
    for found, wanted in zip(torch.autograd.grad(fused, learned), torch.autograd.grad(plain, learned), strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_token_embedding_belongs_to_the_encoder_also_in_copies() -> None:
    model = ModelWithHeads(Bert(TINY, VOCAB), ["masked"])
    assert "heads.masked.weight" not in model.state_dict()
    for moved in (
        model,
        copy.deepcopy(model),
        copy.deepcopy(model).double(),
        copy.deepcopy(model).to("meta").to_empty(device="cpu"),
    ):
        assert moved.heads["masked"].weight is moved.encoder.embedding.token_embedding.weight


def test_pooler_classifier_replaced_and_span() -> None:
    x = torch.randn(2, 3, WIDTH)
    pooler, classifier = randomised(Pooler(WIDTH)), randomised(Classifier(WIDTH, 4, 0.5))
    torch.testing.assert_close(pooler(x), torch.tanh(F.linear(x, pooler.dense.weight, pooler.dense.bias)))
    torch.testing.assert_close(classifier(x), F.linear(x, classifier.output.weight, classifier.output.bias))
    replaced, span = randomised(ReplacedTokenHead(WIDTH, "relu")), randomised(SpanHead(WIDTH))
    inside = F.relu(F.linear(x, replaced.dense.weight, replaced.dense.bias))
    torch.testing.assert_close(replaced(x), inside @ replaced.output.weight[0] + replaced.output.bias[0])
    begin, end = span(x)
    torch.testing.assert_close(torch.stack([begin, end], -1), F.linear(x, span.output.weight, span.output.bias))


@pytest.mark.parametrize("head", [Classifier(WIDTH, 4, 0.5), Pooler(WIDTH, "gelu", 0.5)], ids=["classifier", "pooler"])
def test_they_drop_out_while_training(head: nn.Module) -> None:
    x = torch.randn(5, WIDTH)
    head.train()
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


def weights_of(model: ModelWithHeads) -> dict[str, dict[str, Tensor]]:
    return {part: {name: value.clone() for name, value in weights.items()} for part, weights in model.weights().items()}


def test_weights_are_taken_over_by_head() -> None:
    one, other = (ModelWithHeads(Bert(TINY, VOCAB), heads) for heads in (["pooler", "masked"], ["pooler", "classes"]))
    new = weights_of(other)["classes"]
    other.load(weights_of(one))
    for part in ("encoder", "pooler"):
        assert all(torch.equal(value, one.weights()[part][name]) for name, value in other.weights()[part].items())
    assert all(torch.equal(value, new[name]) for name, value in other.weights()["classes"].items())


def test_weights_of_another_shape_are_refused_in_a_line() -> None:
    model = ModelWithHeads(Bert(TINY, VOCAB), ["pooler"])
    for wrong in (weights_of(ModelWithHeads(Bert(TINY, VOCAB + 1), [])), {}):
        with pytest.raises(CheckpointError, match="these weights are not for this encoder: ") as refused:
            model.load(wrong)
        assert "\n" not in str(refused.value)


def test_an_unknown_head() -> None:
    with pytest.raises(ConfigError, match="no head 'tail'; known are masked, language_model, pooler, sentence_task"):
        make_head("tail", Bert(TINY, VOCAB))
