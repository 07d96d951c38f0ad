"""Wrong types raise a ConfigError of one line, and loaded runs have a useful repr."""

from pathlib import Path
from typing import Any

import pytest

import qkv
from encoder_runs import LINES, own_tokenizer, randomised, write_model, write_run
from qkv.base.errors import ConfigError, DataError
from qkv.inference.arguments import require_list, require_pairs, require_text, require_texts
from qkv.inference.evaluation import evaluate
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.heads import ModelWithHeads
from qkv.text.examples import Question, TaggedExample, TextExample
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from translator_runs import T5, TRANSFORMER, write_pairs_run


class Table:
    """Iterates over the names of its columns, as a table of pandas does."""

    ndim = 2

    def __iter__(self) -> Any:
        return iter(["text", "label"])


WRONG = [
    "good",
    b"good",
    bytearray(b"good"),
    5,
    None,
    {"text": "good"},
    {"good"},
    frozenset({"good"}),
    Table(),
    [5],
    [None],
]


def assert_refused(call: Any, *arguments: Any, **options: Any) -> str:
    """Check that a call is refused in one line, and return it."""
    with pytest.raises(ConfigError) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("given", WRONG[:-2], ids=lambda one: type(one).__name__)
def test_a_list_of_texts_is_wanted(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^translate takes a list of texts, got \w+; for one text, give \[text\]$"):
        require_texts(given, "translate")


def test_an_element_that_is_no_text_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^generate takes a list of prompts, and prompt 2 is NoneType; give a str$"):
        require_texts(["a", None], "generate", "prompt")
    with pytest.raises(ConfigError, match=r"^look takes a text, got NoneType; give a str$"):
        require_text(None, "look")


def test_any_iterable_will_do() -> None:
    assert require_texts(iter(["a", "b"]), "embed") == ["a", "b"] == require_list(("a", "b"), "predict", "example")


def test_a_loaded_encoder(tmp_path: Path) -> None:
    encoder: Any = qkv.load(write_run(tmp_path / "bert"), "cpu")
    assert repr(encoder) == f"TextEncoder('{tmp_path / 'bert'}': bert, trained for masked, on cpu)"
    for wrong in (
        lambda: encoder.embed(5),
        lambda: encoder.fill("a [MASK]"),
        lambda: encoder.fill([None]),
        lambda: encoder.fill(["a [MASK]"], top="x"),
        lambda: encoder.fill(["a [MASK]"], top=-1),
        lambda: qkv.look(encoder, "a text").save(3),
        lambda: qkv.look(encoder, "a text").save("page.foo"),
        lambda: encoder.score([None]),
        lambda: encoder.embed("a"),
    ):
        with pytest.raises(ConfigError) as refused:
            wrong()
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="layer takes a number or mix, got float"):
        encoder.embed(["a"], layer=0.5)


def test_look_refuses_other_things() -> None:
    with pytest.raises(ConfigError, match="look takes the folder of a run or a loaded run, got int"):
        qkv.look(5, "a text")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="look takes a text, got NoneType"):
        qkv.look("nowhere", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="load takes the folder of a run, got NoneType"):
        qkv.load(None)  # type: ignore[arg-type]


def test_values_of_a_table_are_a_list() -> None:
    numpy = pytest.importorskip("numpy")
    assert require_texts(numpy.array(["a", "b"]), "embed") == ["a", "b"]
    assert "takes a list of texts, got ndarray" in assert_refused(require_texts, numpy.array([["a", "b"]]), "embed")
    assert "takes a list of texts, got ndarray" in assert_refused(require_texts, numpy.array("a"), "embed")


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: f"{type(one).__name__} {str(one)[:6]}")
def test_every_method_refuses_other_shapes(wrong: Any, tmp_path: Path) -> None:
    encoder: Any = qkv.load(write_run(tmp_path / "bert"), "cpu")
    for method in (encoder.embed, encoder.fill, encoder.score):
        assert_refused(method, wrong)
    tokenizer = train_tokenizer(TokenizerConfig(kind="byte-bpe", vocab=340), LINES * 9)
    c = GptConfig(width=16, feedforward=16, heads=2, layers=1, max_positions=64)
    model = randomised(ModelWithHeads(Gpt(c, len(tokenizer)), ()))
    run = write_model(tmp_path / "gpt", model, c.model_dump(mode="json"), tokenizer, objective="causal")
    generator: Any = qkv.load(run, "cpu")
    for method in (generator.generate, generator.score):
        assert_refused(method, wrong)
    assert_refused(generator.generate, ["a"], stop=wrong)
    own = own_tokenizer("bpe", False)
    translator: Any = qkv.load(write_pairs_run(tmp_path / "translator", TRANSFORMER, own, own), "cpu")
    for method in (translator.translate, translator.n_best):
        assert_refused(method, wrong)
    if wrong is not None:
        assert_refused(translator.n_best, ["a"], words=wrong)
        assert_refused(translator.n_best, ["a"], prefixes=wrong)
    assert_refused(evaluate, translator, wrong, ["bleu"])
    assert_refused(evaluate, translator, [("a", "b")], wrong)
    sentinels = train_tokenizer(TokenizerConfig(kind="unigram", vocab=200, sentinels=20), LINES * 9)
    pretrained = {"tokenizer": {"file": "x"}, "data": {"text": "x", "length": 64}, "objective": {"kind": "spans"}}
    infiller: Any = qkv.load(write_pairs_run(tmp_path / "t5", T5, sentinels, sentinels, **pretrained), "cpu")
    assert_refused(infiller.fill, wrong)


FINETUNED: dict[str, Any] = {  # heads, labels, a labelled example, one without a label
    "classification": (
        ("pooler", "classes"),
        ("no", "yes"),
        TextExample("a", None, "no", "f", 1),
        TextExample("a", None, None, "f", 1),
    ),
    "regression": (("pooler", "classes"), (), TextExample("a", None, "1.5", "f", 1), TextExample("a", None, None, "f", 1)),
    "tagging": (("tags",), ("O", "X"), TaggedExample(["a"], ["O"], "f", 1), TaggedExample(["a"], [], "f", 1)),
    "answering": (("span",), (), Question("1", "a", "the fox", [(0, "the")], "f", 1, 1), None),
}


@pytest.mark.parametrize("objective", FINETUNED)
def test_a_fine_tuned_encoder_refuses_other_shapes(objective: str, tmp_path: Path) -> None:
    heads, labels, labelled, unlabelled = FINETUNED[objective]
    encoder: Any = qkv.load(write_run(tmp_path / "run", heads=heads, labels=labels, objective=objective), "cpu")
    for wrong in WRONG:
        assert_refused(encoder.predict, wrong)
        assert_refused(encoder.evaluate, wrong)
        if wrong is not None:
            assert_refused(encoder.evaluate, [labelled], wrong)
    too_many = [] if objective == "tagging" else [("a", "b", "c")]
    for wrong in ({"text": "good"}, ("a", 5), b"good", {"good"}, *too_many):
        assert "example 2 " in assert_refused(encoder.predict, [labelled, wrong])
    others = [one for _, _, one, _ in FINETUNED.values() if type(one) is not type(labelled)]
    for wrong in (("a", "b"), "a text", ["a"], *others):
        assert "example 2 " in assert_refused(encoder.evaluate, [labelled, wrong])
    if unlabelled is not None:
        assert "example 2 has none; call predict instead" in assert_refused(encoder.evaluate, [labelled, unlabelled])
        assert len(encoder.predict([labelled, unlabelled])) == 2
    assert "at least one" in assert_refused(encoder.evaluate, [])
    assert "no metric 'bleu'" in assert_refused(encoder.evaluate, [labelled], ["bleu"])
    assert encoder.evaluate([labelled, labelled])


def test_pairs_of_texts() -> None:
    assert require_pairs([("a", "b"), ["c", "d"]], "evaluate") == [("a", "b"), ("c", "d")]
    for wrong in ([("a",)], ["ab"], [("a", None)], [("a", "b", "c")], [{"a": 1, "b": 2}]):
        assert "pair 1 is" in assert_refused(require_pairs, wrong, "evaluate")


@pytest.mark.parametrize(
    ("objective", "pair", "given", "reason"),
    [
        ("classification", "pair", ("a", "b", "c"), "example 2 is a tuple of 3"),
        ("classification", "pair", ["a", 5], "example 2 has int for text 2"),
        ("regression", None, " ", "example 2 has an empty text 1"),
        ("regression", None, (None, "a"), "example 2 has None for text 1"),
        ("tagging", None, ["the", 5], "example 2 has int for word 2"),
        ("tagging", None, ["the", " "], "example 2 has an empty word 2"),
        ("tagging", None, " ", "example 2 has no words"),
        ("answering", None, ("Who?", ""), "example 2 has an empty context"),
        ("answering", None, "Who?", "example 2 is str"),
    ],
)
def test_a_wrong_example_is_refused_with_the_reason(
    tmp_path: Path, objective: str, pair: str | None, given: Any, reason: str
) -> None:
    heads, labels, _, _ = FINETUNED[objective]
    encoder: Any = qkv.load(write_run(tmp_path / "run", heads=heads, labels=labels, objective=objective, pair=pair), "cpu")
    right = ("a", "b") if pair or objective == "answering" else "a b"
    assert assert_refused(encoder.predict, [right, given]).endswith(reason)
    assert len(encoder.predict([right])) == 1


def test_lists_inside_texts_hold_token_ids(tmp_path: Path) -> None:
    heads, labels, _, _ = FINETUNED["classification"]
    encoder: Any = qkv.load(write_run(tmp_path / "run", heads=heads, labels=labels, objective="classification"), "cpu")
    with pytest.raises(DataError, match="a list inside texts holds token ids, and one holds str; give each text as a str"):
        encoder.embed(["good", ["a", "b"]])
