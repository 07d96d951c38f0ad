"""A translator that is taught placeholders puts names that it has never seen where they belong; tags follow their words."""

import random

import pytest

import qkv
from qkv.inference.translator import Translator
from workbench import TARGETS, WORDS, recipe_values


def sentence(rng: random.Random, spans: list[str]) -> tuple[str, str]:
    """Return a sentence with spans among its words, and its translation: word by word, reversed."""
    chosen = [rng.randrange(len(WORDS)) for _ in range(rng.randint(2, 4))]
    sides = [[words[i] for i in chosen] for words in (WORDS, TARGETS)]
    for span in spans:
        at = rng.randint(0, len(sides[0]))
        for side in sides:
            side.insert(at, span)
    return " ".join(sides[0]), " ".join(reversed(sides[1]))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder, rng = tmp_path_factory.mktemp("placeholders"), random.Random(1)
    known = ["{name}", "%s", "<br/>", "$HOME"]
    for name, count in (("train", 1500), ("dev", 10), ("test", 10)):
        pairs = [sentence(rng, rng.sample(known, rng.randint(0, 2))) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    values = recipe_values(folder)
    values["data"]["protect"] = True
    values["tokenizer"] = {"shared": {"kind": "bpe", "vocab": 300}}
    values["model"] |= {"width": 48, "feedforward": 96, "heads": 4, "decoder_layers": 2, "dropout": 0.0, "norm": "pre"}
    values["training"] |= {
        "steps": 300, "batch_tokens": 512, "warmup": 60, "schedule": "cosine", "learning_rate": 4e-3,
        "validate_every": 300, "save_every": 300, "log_every": 50, "averaging": "none",
    }  # fmt: skip
    return qkv.load(qkv.train(values, out=folder / "run"))


def test_unseen_placeholders_stand_where_they_belong(translator: Translator) -> None:
    rng = random.Random(7)
    pairs = [sentence(rng, ["{unseen_1}", "%2$d"][: rng.randint(1, 2)]) for _ in range(100)]
    for engine_options in ({"beam": 1}, {"beam": 4}):
        outputs = translator.translate([source for source, _ in pairs], **engine_options)
        assert sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True)) >= 90
        for output, (source, _) in zip(outputs, pairs, strict=True):
            assert all(output.count(span) == source.count(span) for span in ("{unseen_1}", "%2$d"))


def test_tags_follow_their_words(translator: Translator) -> None:
    rng, right = random.Random(8), 0
    for _ in range(60):
        source, target = (side.split() for side in sentence(rng, []))
        at = rng.randrange(len(source))
        source[at], back = f"<b>{source[at]}</b>", len(target) - 1 - at
        target[back] = f"<b>{target[back]}</b>"
        (output,) = translator.translate([" ".join(source)])
        assert output.count("<b>") == output.count("</b>") == 1 and output.index("<b>") < output.index("</b>")
        right += output == " ".join(target)
    assert right >= 50


def test_sentences_are_translated_one_by_one(translator: Translator) -> None:
    assert translator.segmenter.split == "sentences"
    first, second, third = translator.translate(["Sun rain.", "Old bird!", "Red {x} tree."])
    assert translator.translate(["Sun rain.  Old bird! Red {x} tree."]) == [f"{first}  {second} {third}"]
    (whole,) = translator.n_best(["Sun rain. Old bird!"], split="never")[0]
    assert len(whole.pieces) == 1
