"""A translator that is taught with data.glossary copies translations of terms that it has never seen out of its source."""

import random

import pytest

import qkv
from qkv.inference.translator import Translator
from workbench import TARGETS, WORDS, recipe_values

SYLLABLES = [f"{consonant}{vowel}" for consonant in "bdgkmt" for vowel in "aou"]


def made_up(rng: random.Random, count: int) -> dict[str, str]:
    """Return terms with translations that cannot be guessed from them."""
    return {f"x{''.join(rng.choices(SYLLABLES, k=3))}": rng.choice(SYLLABLES) for _ in range(count)}


def sentence(rng: random.Random, term: tuple[str, str]) -> tuple[str, str]:
    """Return a sentence with a term among its words, and its translation: word by word, reversed."""
    chosen = [rng.randrange(len(WORDS)) for _ in range(rng.randint(1, 3))]
    sides = [[words[i] for i in chosen] for words in (WORDS, TARGETS)]
    at = rng.randint(0, len(chosen))
    for side, word in zip(sides, term, strict=True):
        side.insert(at, word)
    return " ".join(sides[0]), " ".join(reversed(sides[1]))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder, rng = tmp_path_factory.mktemp("soft"), random.Random(1)
    terms = made_up(rng, 300)
    (folder / "terms.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in terms.items()))
    for name, count in (("train", 1500), ("dev", 10), ("test", 10)):
        pairs = [sentence(rng, rng.choice([*terms.items()])) for _ in range(count)]
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    values = recipe_values(folder)
    values["data"] |= {"glossary": str(folder / "terms.tsv"), "glossary_share": 0.8}
    values["tokenizer"] = {"shared": {"kind": "bpe", "vocab": 120}}
    values["model"] |= {"width": 48, "feedforward": 96, "heads": 4, "decoder_layers": 2, "dropout": 0.0, "norm": "pre"}
    values["training"] |= {
        "steps": 250, "batch_tokens": 512, "warmup": 60, "schedule": "cosine", "learning_rate": 4e-3,
        "validate_every": 250, "save_every": 250, "log_every": 50, "averaging": "none",
    }  # fmt: skip
    return qkv.load(qkv.train(values, out=folder / "run"))


def test_unseen_terms_are_copied(translator: Translator) -> None:
    rng = random.Random(7)
    terms = made_up(rng, 60)
    pairs = [sentence(rng, term) for term in terms.items()]
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    outputs = [best for best, *_ in translator.n_best(sources, glossary=terms, soft=True)]
    assert sum(not output.missing_terms for output in outputs) >= 54
    assert sum(output.text == target for output, target in zip(outputs, targets, strict=True)) >= 40
    free = translator.translate(sources)
    assert sum(target in output.split() for output, target in zip(free, terms.values(), strict=True)) <= 12
    reported = [bool(output.missing_terms) for output in outputs]
    assert reported == [target not in output.text.split() for output, target in zip(outputs, terms.values(), strict=True)]


def test_everything_else_still_works(translator: Translator) -> None:
    options = {"glossary": {"xbabobu": "go"}, "soft": True}
    texts = ["xbabobu rain", "xbabobu {x} rain", "xbabobu rain. Xbabobu stone."]
    plain, spans, both = translator.translate(texts, **options)
    assert plain == "pluvia go"
    assert spans.count("{x}") == 1 and "go" in spans.split() and both.lower().split().count("go") == 2
    ((best,),) = translator.n_best(["xbabobu rain"], **options)
    assert len(best.pieces[0][0]) > len(translator.n_best(["xbabobu rain"])[0][0].pieces[0][0])
    assert all(source in (0, 1) for source, _ in translator.alignment(best))  # the annotation is no word of the source
    assert translator.translate(["xbabobu rain"], sampling=True, temperature=0.01, beam=1, **options) == [plain]
    assert len(translator.statistics([best.pieces])) == 1
    assert translator.translate(["sun rain"], **options) == translator.translate(["sun rain"])


def test_tags_follow_their_words(translator: Translator) -> None:
    rng, right = random.Random(8), 0
    terms = made_up(rng, 40)
    for term in terms.items():
        source, target = (side.split() for side in sentence(rng, term))
        at = rng.randrange(len(source))
        source[at], back = f"<b>{source[at]}</b>", len(target) - 1 - at
        target[back] = f"<b>{target[back]}</b>"
        right += translator.translate([" ".join(source)], glossary=terms, soft=True) == [" ".join(target)]
    assert right >= 20  # of some 32 that have the right words


def test_other_engines_need_no_constraints(translator: Translator) -> None:
    pytest.importorskip("ctranslate2")
    fast = qkv.load(translator.folder, "cpu", engine="ctranslate2")
    assert fast.translate(["xbabobu rain"], glossary={"xbabobu": "go"}, soft=True) == ["pluvia go"]
