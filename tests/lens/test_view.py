"""The attention view: weights equal those of the fused engines for every kind of model, and the JSON is complete."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.encoded_examples import encode
from torch import Tensor

from inspected_models import ENCODERS, TEXT, TRANSLATORS, TREE, generator, reader, tokenizer, translator
from qkv.base.errors import ConfigError, DataError
from qkv.base.rows import padded_rows
from qkv.data.trees import encode_sources
from qkv.inference.translator import Translator
from qkv.lens import view
from qkv.lens.capture import capture_calls
from qkv.lens.tokenized_text import TokenizedText, tokenized_text
from qkv.lens.view import look, word_attention
from qkv.text.examples import TaggedExample, TextExample
from qkv.text.treebank import TextWithHeads

CLOSE: dict[str, float] = {"rtol": 0, "atol": 1e-5}


class Fast:
    """Recovers the weights of torch's fused attention by passing the identity as values."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []
        self.usual = F.scaled_dot_product_attention

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        each = torch.eye(k.size(-2)).expand(*k.shape[:-2], -1, -1)
        self.seen.append(self.usual(q, k, each, attn_mask=attn_mask).detach())
        return self.usual(q, k, v, attn_mask=attn_mask)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fast]:
    noting = Fast()
    monkeypatch.setattr(F, "scaled_dot_product_attention", noting)
    yield noting
    assert noting.seen, "no fused attention was computed, so nothing was compared"


def decoded(name: str, length: int = 6) -> tuple[Any, list[int]]:
    """Return an inspector with a greedy translation of `length` tokens, and the translation."""
    model = translator(name)
    source = model.segmenter.cut(TEXT)[0].ids
    config = model.decoding(beam=1, min_length=length, max_length=length + 1)
    written = model.engine.decode([source], config)[0][0].ids
    return model.engine.inspect(name, model.tokenizers, source, written, ""), written  # type: ignore[attr-defined]


# The weights


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "t5", "convolution"])
def test_weights_of_a_whole_pass_are_the_fused_ones(name: str, fast: Fast) -> None:
    inspector, _ = decoded(name)
    fast.seen.clear()
    inspector.network(inspector.source, inspector.read)
    maps = inspector.maps()
    assert len(maps) == len(fast.seen)
    for one, used in zip(maps, fast.seen, strict=True):
        torch.testing.assert_close(one.weights, used[0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_weights_are_those_of_cached_decoding(name: str, fast: Fast) -> None:
    """What each step of a translation attended to, with caches and decoding weights, is a row of the maps."""
    inspector, written = decoded(name)
    layers = len(inspector.network.encoder)
    whole = {(one.part, one.layer): one.weights for one in inspector.maps()}
    used = fast.seen  # of the encoder, then of each step
    for layer in range(layers):
        torch.testing.assert_close(whole["encoder", layer], used[layer][0], **CLOSE)
    for step in range(len(written)):
        for layer in range(3):
            own, cross = used[layers + 6 * step + 2 * layer :][:2]
            torch.testing.assert_close(whole["decoder", layer][:, step, : step + 1], own[0, :, 0], **CLOSE)
            torch.testing.assert_close(whole["cross", layer][:, step], cross[0, :, 0], **CLOSE)


@torch.no_grad()
def test_weights_of_a_unilm_are_those_of_cached_decoding(fast: Fast) -> None:
    inspector, written = decoded("unilm")
    size, layers = inspector.source.ids.size(1), 3
    whole = {(one.part, one.layer): one.weights for one in inspector.maps()}
    steps = fast.seen[layers : layers * (1 + len(written))]  # after the source
    for number, used in enumerate(steps):
        step, layer = divmod(number, layers)
        row = used[0, :, -1]  # of [MASK], which sees the source, what was written, itself
        torch.testing.assert_close(whole["cross", layer][:, step], row[:, :size], **CLOSE)
        torch.testing.assert_close(whole["decoder", layer][:, step, : step + 1], row[:, size:], **CLOSE)
    for layer in range(layers):
        torch.testing.assert_close(whole["encoder", layer], fast.seen[layer][0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["rnn", "rnn, unfed", "convolution"])
def test_weights_are_those_that_steps_of_decoding_tell(name: str) -> None:
    inspector, written = decoded(name)
    crossing = torch.stack([one.weights.mean(0) for one in inspector.maps()]).mean(0)  # as states tell them
    state = inspector.network.start(inspector.source.ids, inspector.source.text > 0, max_length=9, attention=True)
    for step, word in enumerate([tokenizer().bos, *written]):
        inspector.network.step(torch.tensor([word]), state)
        torch.testing.assert_close(crossing[step], state.attention[0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "albert", "electra", "ernie", "unilm", "xlnet", "rotary"])
def test_weights_of_encoders_are_the_fused_ones(name: str, tmp_path: Path, fast: Fast) -> None:
    inspector = reader(name, tmp_path).inspect(TEXT, "a dog")
    inspector.network(inspector.rows, inspector.segment)
    for one, used in zip(inspector.maps(), fast.seen, strict=True):
        torch.testing.assert_close(one.weights, used[0], **CLOSE)


@torch.no_grad()
def test_weights_of_a_gpt_are_those_of_cached_decoding(tmp_path: Path, fast: Fast) -> None:
    model = generator(tmp_path)
    inspector = model.inspect("The quick brown")
    prompt = len(model.prompt("The quick brown"))
    maps = inspector.maps()
    assert len(fast.seen) >= 3 * 3
    for number, used in enumerate(fast.seen):
        step, layer = divmod(number, 3)
        rows = slice(0, prompt) if step == 0 else slice(prompt - 1 + step, prompt + step)  # the first reads the whole prompt
        if rows.stop <= maps[layer].weights.size(1):
            torch.testing.assert_close(maps[layer].weights[:, rows, : rows.stop], used[0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ENCODERS)
def test_looking_changes_nothing_of_what_an_encoder_gives(name: str, tmp_path: Path) -> None:
    loaded = reader(name, tmp_path)
    before = loaded.embed([TEXT])
    inspector = loaded.inspect(TEXT)
    with capture_calls(inspector.network) as calls:
        during = inspector.network(inspector.rows, inspector.segment)
    assert len(calls) == len(inspector.maps()) == 3
    torch.testing.assert_close(during.mean(1)[0], torch.from_numpy(before[0]), rtol=0, atol=1e-4)
    for one in look(loaded, TEXT).maps:
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(one.weights.shape[:-1]))


# The values


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translation_is_shown_whole(name: str) -> None:
    model = translator(name)
    told = look(model, TREE).json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["kind"] == "translator" and told["model"] == TRANSLATORS[name]["kind"]
    assert told["output"] == model.translate([TREE])[0]
    assert told["target"][-1] == "</s>" and told["target_words"][-1] is None
    for side in ("source", "target"):
        assert len(told[side]) == len(told[f"{side}_words"])
        words = told["words"][side]
        without_token = {*range(len(words))} ^ {word for word in told[f"{side}_words"] if word is not None}
        # A piece of several Chinese characters, each a word, belongs to the last of them.
        assert all("\u3400" <= words[number] <= "\u9fff" for number in without_token)
    for one in told["maps"]:
        assert all(len(head) == len(told[one["rows"]]) for head in one["heads"])
        assert all(len(row) == len(told[one["columns"]]) for head in one["heads"] for row in head)
    values = torch.tensor(told["attribution"]["each"])
    assert values.shape == (len(told["target"]), len(told["source"]))
    torch.testing.assert_close(values.sum(0), torch.tensor(told["attribution"]["values"]), rtol=0, atol=2e-3)
    for source, target, weight in told["alignment"]:
        assert 0 <= source < len(told["words"]["source"]) and 0 <= target < len(told["words"]["target"])
        assert view.MIN_LINK <= weight <= 1.0001


def test_parts_and_sides_of_a_transformer() -> None:
    told = look(translator("transformer"), TEXT, "Le café").json()
    assert told["output"] == "Le café"
    assert told["read"][1:] == told["target"][:-1] and told["read"][0] == "<s>"
    named = [(one["name"], one["part"], one["layer"], one["rows"], one["columns"]) for one in told["maps"]]
    assert named == [
        *((f"encoder.{n}.self", "encoder", n, "source", "source") for n in range(2)),
        *(
            entry
            for n in range(3)
            for entry in (
                (f"decoder.{n}.self", "decoder", n, "read", "read"),
                (f"decoder.{n}.cross", "cross", n, "target", "source"),
            )
        ),
    ]
    assert len(told["maps"][0]["heads"]) == 2
    assert len(told["positions"]) == len(told["source"]) == len(told["points"]["source"])


def test_numbers_are_rounded() -> None:
    told = look(translator("transformer"), TEXT).json()
    for value in told["maps"][0]["heads"][0][0]:
        assert round(value, 4) == value


def test_the_repr_is_one_line() -> None:
    seen = look(translator("transformer"), "red bird", "Le café")
    assert repr(seen) == f"AttentionView(translator, transformer: 'red bird' -> {seen.output!r}; .save('page.html'), .json())"


def test_a_linformer_shows_the_rest_of_itself_alone(tmp_path: Path) -> None:
    model = translator("linformer")
    for text in ("fox", "fox " * 4, TEXT):  # 8 tokens too, the projected length
        assert {one.part for one in look(model, text).maps} == {"decoder", "cross"}
    assert len(look(model, "fox " * 4).texts["source"].ids) == 8
    loaded = reader("bert", tmp_path, attention={"kind": "linformer", "projected_length": 4})
    for text in (TEXT, "fox fox"):
        with pytest.raises(ConfigError, match="to projections of positions and not to words"):
            look(loaded, text)


def test_a_gpt_is_told_with_what_it_goes_on_with(tmp_path: Path) -> None:
    model = generator(tmp_path)
    told = look(model, "The quick").json()
    (written,) = model.generate(["The quick"], 12)[0]
    assert told["kind"] == "generator" and told["target"] is None and told["output"] == written.text
    assert len(told["source"]) == len(model.prompt("The quick")) + len(written.ids)
    given = look(model, "The quick", " brown fox").json()
    assert given["output"] == " brown fox"
    first = len(model.prompt("The quick"))
    assert not any(given["attribution"]["values"][first:]) and any(given["attribution"]["values"][:first])


def test_a_masked_word_is_guessed_and_explained(tmp_path: Path) -> None:
    loaded = reader("bert", tmp_path)
    told = look(loaded, "Paris is the [MASK] of France.").json()
    assert told["output"] == loaded.fill(["Paris is the [MASK] of France."], top=1)[0][0][0].word
    assert told["output"] in told["attribution"]["of"]
    position = told["source"].index("[MASK]")
    assert told["words"]["source"][told["source_words"][position]] == "[MASK]"
    assert look(loaded, "Paris is the capital of France.").json()["attribution"] is None


def test_a_pair_of_texts_is_read_as_one(tmp_path: Path) -> None:
    loaded = reader("bert", tmp_path)
    told = look(loaded, "the fox", "a dog").json()
    assert told["source"].count("</s>") == 2
    one, two = (look(loaded, *texts).maps[0].weights for texts in (("the fox", "a dog"), ("the fox",)))
    assert one.shape[-1] > two.shape[-1]


@pytest.mark.parametrize("objective", ["classification", "regression"])
def test_what_a_fine_tuned_model_says_is_explained(tmp_path: Path, objective: str) -> None:
    labels = ("bad", "good") if objective == "classification" else ()
    loaded = reader("bert", tmp_path, heads=("pooler", "classes"), labels=labels, objective=objective)
    told = look(loaded, TEXT).json()
    (said,) = loaded.predict([TEXT])
    if objective == "classification":
        assert told["output"] == f"{said.label} ({said.probability:.0%})" and said.label in told["attribution"]["of"]
    else:
        assert float(told["output"]) == pytest.approx(said, abs=1e-3)


# Trees

FLAT = [5, 5, 5, 5, 0, 5, 5, 5, 5]


def as_json(text: str, heads: list[int]) -> str:
    return json.dumps({"text": text, "heads": heads})


def assert_same_weights(found: view.AttentionView, network: Any, *rows: Any) -> None:
    """Check that all weights equal those of the network, run by itself on these rows."""
    with torch.no_grad(), capture_calls(network) as calls:
        network(*rows)
    assert len(found.maps) == len(calls) >= 3
    for one, (_, weights) in zip(found.maps, calls, strict=True):
        torch.testing.assert_close(one.weights, weights[0], **CLOSE)


def assert_otherwise(one: view.AttentionView, other: view.AttentionView) -> None:
    """Check that another tree changes every kind of value."""
    assert not torch.allclose(one.maps[0].weights, other.maps[0].weights, atol=1e-3)
    for kind in ("rollout", "attribution"):
        first, second = (getattr(found, kind) for found in (one, other))
        values = (first.weights, second.weights) if kind == "rollout" else (first.values, second.values)
        assert not torch.allclose(*values, atol=1e-4), kind
    assert one.positions is not None and other.positions is not None and not torch.allclose(one.positions, other.positions)


def test_a_translation_is_looked_at_with_its_tree() -> None:
    model = translator("structural")
    looked = [look(model, as_json(TEXT, heads), "Le café") for heads in (TREE.heads, FLAT)]
    for one, heads in zip(looked, (TREE.heads, FLAT), strict=True):
        (leaves,) = encode_sources(tokenizer(), [TextWithHeads(TEXT, heads)])
        source = padded_rows(*(torch.tensor([row]) for row in (leaves, [True] * len(leaves), leaves.head)))  # type: ignore[attr-defined]
        begun = torch.tensor([[tokenizer().bos, *tokenizer().encode("Le café")]])
        assert_same_weights(one, model.engine.model, source, padded_rows(begun, begun >= 0))  # type: ignore[attr-defined]
    assert_otherwise(*looked)
    assert look(model, as_json(TEXT, TREE.heads)).json() == look(model, TREE).json()


@pytest.mark.parametrize("pair", [None, "Rome is the capital"])
def test_a_text_is_looked_at_with_its_tree(tmp_path: Path, pair: str | None) -> None:
    labels = ("bad", "good")
    loaded = reader(
        "bert", tmp_path, ("pooler", "classes"), labels, "classification", positions="structural", max_distance=3
    )  # fmt: skip
    second = [] if pair is None else [[4, 4, 4, 0]]
    looked = []
    for heads in (TREE.heads, FLAT):
        looked.append(look(loaded, as_json(TEXT, heads), pair and as_json(pair, second[0])))
        example = TextExample(TEXT, pair, None, "", 0, [heads, *second])
        found = encode([example], tokenizer(), 60, "classification", labels)
        ids, head, segment = (torch.from_numpy(row)[None] for row in (found.ids, found.head, found.segment))
        assert_same_weights(looked[-1], loaded.model.encoder, padded_rows(ids, ids >= 0, head), segment)
        (said,) = loaded.predict([example])
        assert looked[-1].output == f"{said.label} ({said.probability:.0%})"
    assert_otherwise(*looked)
    given = (TREE, None if pair is None else TextWithHeads(pair, second[0]))
    assert look(loaded, *given).json() == looked[0].json()


def test_a_tagger_is_looked_at_with_its_tree(tmp_path: Path) -> None:
    loaded = reader("bert", tmp_path, ("tags",), ("O", "NAME"), "tagging", positions="structural-relative", max_distance=3)
    found = encode([TaggedExample(TEXT.split(), [], "", 0, heads=TREE.heads)], tokenizer(), 60, "tagging", ("O", "NAME"))
    ids, head = (torch.from_numpy(row)[None] for row in (found.ids, found.head))  # type: ignore[arg-type]
    assert_same_weights(look(loaded, TREE), loaded.model.encoder, padded_rows(ids, ids >= 0, head))


WANTED = r'structural positions need; give {"text": "good dogs", "heads": \[2, 0\]}'


@pytest.mark.parametrize(
    "text", ["good dogs", "[1]", '{"text": "good dogs"}', '{"heads": [2, 0]}', '{"text": "good dogs", "heads": 2}']
)
def test_a_text_without_its_tree(text: str, tmp_path: Path) -> None:
    loaded = reader("bert", tmp_path, ("tags",), ("O", "NAME"), "tagging", positions="structural")
    for model in (translator("structural"), loaded):
        with pytest.raises(
            DataError, match=f"the text: not a JSON object with a text and its heads, which this model's {WANTED}"
        ):
            look(model, text)
    with pytest.raises(DataError, match="the second text: not a JSON object"):
        look(loaded, TREE, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (as_json("good dogs", [0]), "1 heads for 2 words"),
        (as_json("good dogs", [2, 1]), "form a cycle"),
        (as_json("\ud800 dogs", [2, 0]), "half a character"),
        (as_json(" ", []), "the text is empty"),
        (TextWithHeads("good dogs", [3, 0]), "word 1 has the head 3"),
    ],
)
def test_a_text_with_a_wrong_tree(text: str, says: str, tmp_path: Path) -> None:
    for model in (
        translator("structural"),
        reader("bert", tmp_path, ("tags",), ("O", "NAME"), "tagging", positions="structural"),
    ):
        with pytest.raises(DataError, match=says):
            look(model, text)


def test_other_models_read_a_text_with_heads_as_any_other(tmp_path: Path) -> None:
    for model in (translator("transformer"), reader("bert", tmp_path), generator(tmp_path)):
        assert look(model, TREE).json() == look(model, TEXT).json()


# Errors


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_text(text: str, tmp_path: Path) -> None:
    for loaded in (translator("transformer"), reader("bert", tmp_path), generator(tmp_path)):
        with pytest.raises(DataError, match="empty"):
            look(loaded, text)


def test_a_text_that_is_translated_in_parts() -> None:
    with pytest.raises(DataError, match="look at one of them"):
        look(translator("transformer"), f"{TEXT} " * 60)


def test_more_weights_than_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_WEIGHTS", 1000)
    with pytest.raises(DataError, match="shorten them"):
        look(translator("transformer"), TEXT)


def test_a_text_beyond_learned_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="60 at most"):
        look(reader("bert", tmp_path), "fox " * 40)


def test_another_programs_engine() -> None:
    model = translator("transformer")
    with pytest.raises(ConfigError, match="only qkv's own engine"):
        look(Translator(object(), model.tokenizers, model.recipe), TEXT)  # type: ignore[arg-type]


def test_models_without_attention() -> None:
    TRANSLATORS["bare"] = {"kind": "rnn", "width": 16, "embedding_width": 16, "layers": 1, "attention": "none"}
    with pytest.raises(ConfigError, match="no attention to words"):
        look(translator("bare"), TEXT)
    del TRANSLATORS["bare"]


# Words and tokens


def test_tokens_know_their_words() -> None:
    ids = [tokenizer().bos, *tokenizer().encode("Paris, the foxdog (café)"), tokenizer().mask, tokenizer().eos]
    text = tokenized_text(tokenizer(), ids)
    assert text.words == ["Paris", ",", "the", "foxdog", "<unk>", "café", "<unk>", "[MASK]"]
    assert text.word_ids[0] is None and text.word_ids[-1] is None and text.word_ids[-2] == 7
    spelled: dict[int, str] = {}
    for word, piece in zip(text.word_ids, text.tokens, strict=True):
        if word is not None:
            spelled[word] = spelled.get(word, "") + piece.replace("▁", "")
    assert list(spelled.values()) == text.words


def test_every_chinese_character_is_a_word() -> None:
    text = tokenized_text(tokenizer(), tokenizer().encode("打开 Home 设置。"))
    assert text.words == ["打", "开", "Home", "设", "置", "。"]


def test_word_attention_sums_attended_tokens_and_averages_attending_ones() -> None:
    rows = TokenizedText([5, 6, 3], ["a", "b", "</s>"], [0, 0, None], [False, False, True], ["ab"])
    columns = TokenizedText([7, 8, 9, 3], ["c", "d", "e", "</s>"], [0, 0, 1, None], [False] * 3 + [True], ["cd", "e"])
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.3, 0.0, 0.1, 0.6], [1.0, 0.0, 0.0, 0.0]])
    wanted = torch.tensor([[0.6, 0.4]])
    torch.testing.assert_close(word_attention(weights, rows, columns), wanted)
    assert math.isclose(float(word_attention(weights * 0, rows, columns).sum()), 0.0)
