"""A loaded encoder: vectors by layer, independent of the batch; predictions for masked words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import qkv.inference.text_encoder
from encoder_runs import TEXTS, own_tokenizer, write_electra, write_model, write_run
from huggingface_networks import ENCODERS
from qkv.base.errors import CheckpointError, ConfigError, DataError, QkvWarning
from qkv.base.rows import padded_rows
from qkv.folder.networks import named_weights, read_network_run
from qkv.inference.text_encoder import TextEncoder, load_text_encoder
from qkv.parts.heads import ModelWithHeads
from qkv.training.checkpoints import load_weights


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "bert", heads=("masked", "pooler"))


@pytest.fixture(scope="module")
def encoder(run: Path) -> TextEncoder:
    return load_text_encoder(run, "cpu")


def hidden_of(model: ModelWithHeads, ids: list[int], layer: int) -> torch.Tensor:
    """Return the hidden states of one text alone. -> (T, D)."""
    row = torch.tensor([ids])
    with torch.no_grad():
        return list(model.encoder.each_layer(padded_rows(row, torch.ones_like(row).bool())))[layer][0]


@pytest.mark.parametrize("layer", [-1, 0, 1, 3, -4])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_texts(encoder: TextEncoder, pooling: str, layer: int) -> None:
    found = encoder.embed(TEXTS, pooling=pooling, layer=layer)  # type: ignore[arg-type]
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), 16)
    for vector, text in zip(found, TEXTS, strict=True):
        hidden = hidden_of(encoder.model, [2, *encoder.tokenizer.encode(text), 3], layer)
        np.testing.assert_allclose(vector, hidden[0] if pooling == "cls" else hidden.mean(0), atol=1e-5)


def test_vectors_do_not_depend_on_the_batch(encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    together = encoder.embed(TEXTS)
    for budget in (1, 50, 200):
        monkeypatch.setattr(qkv.inference.text_encoder, "BATCH_TOKENS", budget)
        np.testing.assert_allclose(encoder.embed(TEXTS), together, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[::-1])[::-1], together, atol=1e-5)


def test_vectors_may_be_one_long(encoder: TextEncoder) -> None:
    np.testing.assert_allclose(np.linalg.norm(encoder.embed(TEXTS, normalise=True), axis=1), 1, atol=1e-5)
    assert encoder.embed([]).shape == (0, 16)


def test_long_texts_are_cut_with_a_warning(encoder: TextEncoder) -> None:
    long = "fox " * 100
    with pytest.warns(UserWarning, match="1 of 2 texts have more than 60 tokens and are cut there"):
        found = encoder.embed([long, "fox"])
    kept = encoder.tokenizer.encode(long.strip())[:58]
    np.testing.assert_allclose(found[0], hidden_of(encoder.model, [2, *kept, 3], -1).mean(0), atol=1e-5)


def test_where_positions_have_no_end_no_text_is_cut(tmp_path: Path) -> None:
    encoder = load_text_encoder(write_run(tmp_path / "run", positions="rotary"), "cpu")
    long = "fox " * 100
    found = encoder.embed([long])[0]
    np.testing.assert_allclose(
        found, hidden_of(encoder.model, [2, *encoder.tokenizer.encode(long.strip()), 3], -1).mean(0), atol=1e-5
    )
    assert len(encoder.fill([long + "[MASK]"])[0]) == 1


def test_texts_longer_than_in_training_are_warned_of_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", heads=("masked", "pooler", "classes"), labels=("no", "yes"), objective="classification")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "trained_length": 8}))
    long = "fox " * 20
    for use in (lambda of: of.embed([long, "fox"]), lambda of: of.fill([long + "[MASK]"])[0], lambda of: of.predict([long])):
        encoder = load_text_encoder(run, "cpu")
        encoder.embed(["fox"])
        with pytest.warns(QkvWarning, match=r"1 of [12] texts have more than 8 tokens, the most that .*run was trained on"):
            use(encoder)
        use(encoder)  # a second warning would be an error here
    (run / "config.json").write_text(json.dumps({**config, "trained_length": None}))
    load_text_encoder(run, "cpu").embed([long])  # as of an imported one


@pytest.mark.parametrize(
    ("options", "message"),
    [({"layer": 4}, r"no layer 4; this model has 0 \(the embeddings\) to 3"), ({"pooling": "max"}, "max")],
)
def test_vectors_that_cannot_be(encoder: TextEncoder, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoder.embed(["a"], **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"give \[text\]"):
        encoder.embed("a")


def test_fill_predicts_masked_words(encoder: TextEncoder) -> None:
    first, second = encoder.fill(["the [MASK] fox [MASK]."], top=4)[0]
    ids = [2, *encoder.tokenizer.encode_masked("the [MASK] fox [MASK]."), 3]
    hidden = hidden_of(encoder.model, ids, -1)[
        [position for position, number in enumerate(ids) if number == encoder.tokenizer.mask]
    ]
    wanted = encoder.model.heads["masked"](hidden).softmax(-1).topk(4)
    for guesses, chances, numbers in zip((first, second), wanted.values.tolist(), wanted.indices.tolist(), strict=True):
        assert [guess.probability for guess in guesses] == pytest.approx(chances, abs=1e-5)
        pieces = encoder.tokenizer.pieces(numbers)
        assert [guess.word for guess in guesses] == [piece.lstrip("▁") or piece for piece in pieces]
    everything = encoder.fill(["[MASK]"], top=10_000)[0][0]
    assert math.isclose(sum(guess.probability for guess in everything), 1, rel_tol=1e-4)


def test_a_pretrained_electra(tmp_path: Path) -> None:
    """The discriminator gives the vectors, the generator predicts masked tokens; they share their embeddings."""
    run = read_network_run(write_electra(tmp_path / "run"))
    assert run.generator is not None
    assert set(run.network.weights) == {"encoder", "replaced"} and set(run.generator.weights) == {"encoder", "masked"}
    encoder = TextEncoder(run, torch.device("cpu"))
    assert encoder.embed(["the fox"]).shape == (1, 16) and encoder.fill_model.encoder.config.width == 8
    shared = [model.encoder.embedding.token_embedding.weight for model in (encoder.model, encoder.fill_model)]
    assert torch.equal(*shared)
    assert len(encoder.fill(["the [MASK]"])[0][0]) == 5


@pytest.mark.parametrize("kind", ENCODERS)
def test_weights_keep_their_names(kind: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / kind, kind, ("pooler", "classes"), labels=("no", "yes", "perhaps"))
    found = read_network_run(run)
    saved = load_weights(run / "model.safetensors")
    assert {name: weight.tolist() for name, weight in named_weights(found.network).items()} == {
        name: weight.tolist() for name, weight in saved.items()
    }
    assert found.network.label_names == ("no", "yes", "perhaps")


TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # heads and labels
    "classification": (("pooler", "classes"), ("no", "yes", "perhaps")),
    "regression": (("pooler", "classes"), ()),
    "tagging": (("tags",), ("O", "B-X", "I-X")),
    "answering": (("span",), ()),
}


@pytest.mark.parametrize("objective", TASKS)
def test_predictions(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, labels = TASKS[objective]
    pair = "pair" if objective in ("classification", "regression") else None
    run = write_run(tmp_path / "run", heads=heads, labels=labels, objective=objective, pair=pair)
    encoder = load_text_encoder(run, "cpu")
    texts = [text for text in TEXTS if text] * 20
    examples = [text.split() for text in texts] if objective == "tagging" else [("the fox", text) for text in texts]
    found = encoder.predict(examples)
    assert len(found) == len(examples) and encoder.predict([]) == []
    if objective == "classification":
        assert {one.label for one in found} <= {*labels} and all(1 / 3 <= one.probability <= 1 for one in found)
    if objective == "tagging":
        assert [len(tags) for tags in found] == [len(words) for words in examples]
        assert {tag for tags in found for tag in tags} <= {*labels}
    if objective == "answering":
        assert all(one.text in text for one, text in zip(found, texts, strict=True)) and any(one.text for one in found)
    monkeypatch.setattr(qkv.inference.text_encoder, "BATCH_TOKENS", 128)
    predictions = encoder.predict(examples)
    if objective == "regression":
        np.testing.assert_allclose(predictions, found, atol=1e-5)
    else:
        assert [one if objective == "tagging" else one[0] for one in predictions] == [
            one if objective == "tagging" else one[0] for one in found
        ]


def test_what_was_not_fine_tuned_predicts_nothing(encoder: TextEncoder) -> None:
    with pytest.raises(
        ConfigError,
        match=r"is an encoder \(bert, trained for masked\), and qkv predict is not for it; use qkv fill, .*, or fine-tune it: ",
    ):
        encoder.predict(["the fox"])


def test_what_cannot_be_filled(encoder: TextEncoder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no \[MASK\] in the text; write \[MASK\]"):
        encoder.fill(["the fox"])[0]
    with pytest.raises(
        DataError, match="the text has 103 tokens, and this model reads 60 at most: it has no position embeddings beyond"
    ):
        encoder.fill(["fox " * 100 + "[MASK]"])[0]
    bare = load_text_encoder(write_run(tmp_path / "bare", heads=("pooler",)), "cpu")
    with pytest.raises(ConfigError, match="filling in words needs the head 'masked'; this run's heads are: pooler"):
        bare.fill(["the [MASK]"])[0]


def test_labels_that_are_not_the_weights(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", heads=("pooler", "classes"), labels=("no", "yes"))
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "labels": ["no", "yes", "perhaps"]}))
    with pytest.raises(CheckpointError, match="3 labels, and the weights have another number"):
        load_text_encoder(run)


def test_folders_that_are_no_encoders(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such run folder"):
        load_text_encoder(tmp_path / "none")
    model = torch.nn.Linear(2, 2)
    run = write_model(tmp_path / "odd", model, {"kind": "bert"}, own_tokenizer())
    with pytest.raises(CheckpointError, match="no weights of a network with heads"):
        load_text_encoder(run)
