"""Phrases in the outputs of every model that can be searched, and what greedy search and sampling do with them."""

import pytest

from inspected_models import TEXT, TRANSLATORS, TREE, translator
from qkv.base.errors import ConfigError
from qkv.decoding.phrases import Phrase
from qkv.inference.engines import SearchEngine


@pytest.mark.parametrize("name", TRANSLATORS)
def test_every_model_writes_the_phrases_it_must(name: str) -> None:
    model = translator(name)
    text = TREE if name == "structural" else TEXT
    source = model.segmenter.cut(text)[0].ids
    form = tuple(model.tokenizers.target.encode("lazy dog"))
    config = model.decoding(beam=3, n_best=2, max_extra=0)
    free, held = model.engine.decode([source, source], config, phrases=[(), (Phrase((form,)), Phrase(((30,),), once=True))])
    assert [one.ids for one in free] == [one.ids for one in model.engine.decode([source] * 2, config)[0]]
    for one in held:
        assert one.ids.count(30) == 1
        assert any(tuple(one.ids[i : i + len(form)]) == form for i in range(len(one.ids)))


def test_greedy_search_gets_a_beam_for_inputs_with_phrases_alone() -> None:
    model = translator("rnn")
    source = model.segmenter.cut(TEXT)[0].ids
    greedy = model.decoding(beam=1, max_extra=0)
    phrases = [(), (Phrase(((30, 31),)),), ()]
    found = model.engine.decode([source, source, source], greedy, phrases=phrases)
    assert found[0] == found[2] == model.engine.decode([source], greedy)[0]
    assert found[1] == model.engine.decode([source], model.decoding(beam=4, max_extra=0), phrases=phrases[1:2])[0]
    for options in ({"sampling": True}, {"beam": 1, "repetition_penalty": 1.2}):
        with pytest.raises(ConfigError, match=f"searched with a beam, without {'sampling' if 'sampling' in options else 'rep'}"):
            model.engine.decode([source], model.decoding(**options), phrases=phrases[1:2])


def test_special_tokens_come_in_phrases_alone() -> None:
    model = translator("rnn")
    source, mask = model.segmenter.cut(TEXT)[0].ids, model.tokenizers.target.mask
    assert isinstance(model.engine, SearchEngine) and model.engine.placeholders == [mask]
    (held,) = model.engine.decode([source], model.decoding(beam=3, max_extra=0), phrases=[(Phrase(((mask,),), once=True),)])
    assert held[0].ids.count(mask) == 1
