"""Glossaries in translations: terms come out in one of their forms, and what cannot is said."""

import pytest
from decoding_toys import occurrences

from encoder_runs import LINES
from inspected_models import TEXT, translator
from qkv.base.errors import ConfigError, DataError
from qkv.inference.segmenter import TextOptions
from qkv.inference.translator import Translator
from qkv.text.glossary import Glossary, Term
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

GLOSSARY = {"fox": "old dog", "lazy": ["quick", "brown"], "jump*": "="}
OPTIONS = {"beam": 3, "max_extra": 0}


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_terms_are_translated_as_the_glossary_says(name: str) -> None:
    model = translator(name)
    ((best, second),) = model.n_best([TEXT], n_best=2, glossary=GLOSSARY, **OPTIONS)
    for output in (best, second):
        assert "old dog" in output.text and ("quick" in output.text or "brown" in output.text) and "jumps" in output.text
        assert [term.source for term in output.terms] == ["fox", "jump", "lazy"]
        goes_on = ["fox"] if "old dogAAAAA" in output.text else []  # by its tokens the term is there; by the text it is not
        assert [term.source for term in output.missing_terms] == goes_on and bool(goes_on) == (name == "transformer")
    assert model.translate(["The dog."], glossary=GLOSSARY, **OPTIONS) == model.translate(["The dog."], **OPTIONS)


def test_a_term_that_occurs_twice_comes_twice_and_spans_have_none() -> None:
    model = translator("rnn")
    (twice,) = model.translate(["a fox and a fox"], glossary={"fox": "lazy"}, **OPTIONS)
    assert twice.lower().count("lazy") == 2
    ((output,),) = model.n_best(["the dog at https://fox.org/fox"], glossary={"fox": "lazy"}, **OPTIONS)
    assert output.terms == ()


def test_what_cannot_be_said_is_reported() -> None:
    words = train_tokenizer(TokenizerConfig(kind="words", vocab=100), LINES)
    model = translator("rnn")
    strange = Translator(model.engine, model.tokenizers._replace(target=words), model.recipe)
    (part,) = strange.segmenter.cut("the fox", TextOptions(glossary=Glossary({"fox": "xyzzy"})))
    assert part.phrases == () and [match.term for match in part.terms] == [Term("fox", ("xyzzy",))]
    ((output,),) = model.n_best(["the fox"], glossary={"fox": "dog " * 20}, max_length=8, beam=3)
    assert [str(term) for term in output.missing_terms] == ["fox -> " + " ".join(["dog"] * 20)] and output.text


def test_forms_are_those_that_a_text_has() -> None:
    model = translator("rnn")
    for kind in ("bpe", "byte-bpe", "unigram", "wordpiece", "words", "characters"):
        tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=400), LINES * 10)  # type: ignore[arg-type]
        other = Translator(model.engine, model.tokenizers._replace(target=tokenizer), model.recipe)
        (part,) = other.segmenter.cut("fox", TextOptions(glossary=Glossary({"fox": "quick brown"})))
        for text, wanted in {"the quick brown dog": 1, "quick brown dog": 1, "the lazy dog": 0}.items():
            assert occurrences(tokenizer.encode(text), part.phrases[0]) == wanted, (kind, text)


def test_a_translation_may_follow_a_sign_that_the_source_has() -> None:
    model = translator("rnn")
    for kind in ("bpe", "byte-bpe", "unigram", "wordpiece"):
        tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=400), [*LINES * 10, "Quick (b) [c] /d -e „f“ 'g' \"h\""])  # type: ignore[arg-type]
        other = Translator(model.engine, model.tokenizers._replace(target=tokenizer), model.recipe)
        plain, signs = (other.segmenter.cut(text, TextOptions(glossary=Glossary({"fox": "quick brown"})))[0].phrases[0]
                        for text in ("a fox", "a \"fox\" (or dog/fox)"))  # fmt: skip
        for text in ("the (quick brown) dog", "(Quick brown", "dog/quick brown", "the „quick brown“", "'quick brown'"):
            ids = tokenizer.encode(text)
            assert (occurrences(ids, plain), occurrences(ids, signs)) == (0, 1), (kind, text)
        for text in ("the fquick brown", "the [quick brown]", "fox-quick brown"):
            assert occurrences(tokenizer.encode(text), signs) == 0, (kind, text)


def test_where_a_glossary_cannot_be_kept_it_is_refused() -> None:
    model = translator("rnn")
    for options in ({"sampling": True}, {"beam": 1, "repetition_penalty": 1.5}):
        with pytest.raises(ConfigError, match="a glossary needs beam search"):
            model.translate([TEXT], glossary=GLOSSARY, **options)
    with pytest.raises(ConfigError, match="reads no trees"):
        translator("structural").translate([TEXT], glossary=GLOSSARY)
    with pytest.raises(DataError, match="glossary is a Glossary or a mapping"):
        model.translate([TEXT], glossary="terms.tsv")
