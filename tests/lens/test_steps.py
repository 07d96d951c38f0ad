"""The search as it is shown is the search as it is: its output, its scores, and every token's log-probability."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from inspected_models import TEXT, generator, reader, translator
from qkv.base.errors import ConfigError
from qkv.base.rows import padded_rows
from qkv.decoding.hypothesis import Hypothesis
from qkv.lens.steps import SearchView

SEARCHES: list[dict[str, Any]] = [
    {"beam": 4},
    {"beam": 3, "n_best": 2, "length_penalty": 1.0, "max_extra": 12},
    {"beam": 1},
    {"sampling": True, "temperature": 0.7, "top_k": 12, "top_p": 0.9, "seed": 5},
]


def check_tree(view: SearchView, best: Hypothesis) -> None:
    """Check that the tree leads to the output, and that its figures agree."""
    nodes, eos = view.nodes, view.writing.tokenizer.eos
    path = [node for node in nodes if node.best][1:]
    assert [node.token for node in path] == [*best.ids, *([eos] if best.finished else [])]
    assert path[-1].total == pytest.approx(best.logprob, abs=1e-5) and path[-1].score == pytest.approx(best.score, abs=1e-5)
    for before, node in pairwise(path):
        assert node.parent == before.id
    for node in nodes[1:]:
        parent = nodes[node.parent or 0]
        assert node.step == parent.step + 1 and parent.kept and node.logprob <= 1e-5
        assert node.total == pytest.approx(parent.total + node.logprob, abs=1e-5)
        assert node.status != "dropped" or not node.best
        if node.status != "dropped":
            assert node.kept and parent.status == "alive"
    ended = [node for node in nodes if node.status == "ended"]
    assert max((node.score for node in ended), default=best.score) == pytest.approx(best.score, abs=1e-5)
    for number, live in enumerate(view.steps[1:]):  # the hypotheses of the next step are the best that have not ended
        here = sorted((node for node in nodes if node.step == number), key=lambda node: -node.total)
        assert live == [node.id for node in here if node.token != eos][: len(live)]


@pytest.mark.parametrize("options", SEARCHES, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("name", ["transformer", "rnn", "unilm"])
def test_a_translation_is_that_of_translate(name: str, options: dict[str, Any]) -> None:
    loaded = translator(name)
    view = qkv.steps(loaded, TEXT, **options)
    found = loaded.n_best([TEXT], split="never", **options)[0]
    assert view.output == found[0].text and view.writing.hypotheses[0].score == pytest.approx(found[0].score, abs=1e-6)
    assert [one.ids for one in view.writing.hypotheses] == [one.pieces[0][1] for one in found]
    check_tree(view, view.writing.hypotheses[0])
    values = view.json()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["search"] == ("sampling" if "sampling" in options else "beam" if options["beam"] > 1 else "greedy")


@torch.no_grad()
def test_every_node_has_the_model_s_own_log_probability() -> None:
    loaded = translator("transformer")
    view = qkv.steps(loaded, TEXT, beam=4, top=3)
    network: Any = loaded.engine.model  # type: ignore[attr-defined]
    source = torch.tensor([loaded.segmenter.cut(TEXT)[0].ids])
    pieces = view.writing.tokenizer.pieces

    def logprobs(node: int) -> torch.Tensor:
        read = torch.tensor([[view.writing.tokenizer.bos, *view.tokens_to(node)]])
        rows = [padded_rows(ids, torch.ones_like(ids, dtype=torch.bool)) for ids in (source, read)]
        return network.logits(network(*rows))[0, -1].log_softmax(-1)

    for number, (live, step) in enumerate(zip(view.steps, view.json()["steps"], strict=True)):
        assert [one["node"] for one in step["hypotheses"]] == live and len(live) == (4 if number else 1)
        for shown in step["hypotheses"][:2]:
            own = logprobs(shown["node"])
            best = own.topk(3)
            assert [token for token, _ in shown["top"]] == pieces(best.indices.tolist())
            assert [value for _, value in shown["top"]] == pytest.approx(best.values.exp().tolist(), abs=1e-4)
            for node in (node for node in view.nodes if node.parent == shown["node"]):
                assert node.logprob == pytest.approx(float(own[node.token]), abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("options", SEARCHES[:1] + SEARCHES[2:], ids=["beam", "greedy", "sampling"])
def test_a_gpt_writes_what_generate_does(tmp_path: Path, options: dict[str, Any]) -> None:
    loaded = generator(tmp_path)
    view = qkv.steps(loaded, "The quick", top=4, max_new_tokens=6, **options)
    (written,) = loaded.generate(["The quick"], 6, **options)[0]
    assert view.output == written.text and view.writing.hypotheses[0].ids == written.ids
    check_tree(view, view.writing.hypotheses[0])
    if not options.get("sampling"):
        assert all(step["draw"] is None for step in view.json()["steps"])
        return
    gpt: Any = loaded.causal_lm.gpt
    for step, live, node in zip(view.json()["steps"], view.steps, [one for one in view.nodes if one.best][1:], strict=True):
        ids = torch.tensor([[*loaded.prompt("The quick"), *view.tokens_to(live[0])]])
        logits = gpt.logits(gpt(padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))))[0, -1]
        assert step["hypotheses"][0]["top"][0][1] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-4)
        allowed = torch.full_like(logits, float("-inf"))
        allowed[loaded.text_tokens] = logits[loaded.text_tokens]
        allowed[loaded.tokenizer.eos] = logits[loaded.tokenizer.eos]
        best = allowed.topk(12)  # top_k, then temperature, then top_p
        chance = (best.values / 0.7).softmax(-1)
        kept = chance.cumsum(-1) - chance < 0.9
        chance = torch.where(kept, chance, 0) / chance[kept].sum()
        assert step["draw"]["choices"] == int(kept.sum())
        assert [value for _, value in step["draw"]["top"]] == pytest.approx(chance[: min(4, int(kept.sum()))].tolist(), abs=1e-4)
        assert step["draw"]["probability"] == pytest.approx(float(chance[best.indices == node.token]), abs=1e-4)


def test_mistakes(tmp_path: Path) -> None:
    loaded = translator("transformer")
    for run, options, said in [
        (loaded, {"beam": 60}, "a tree of 60 hypotheses side by side cannot be shown"),
        (loaded, {"sampling": True, "n_best": 2}, "one sample is shown"),
        (loaded, {"coverage_penalty": 0.2}, "cannot be shown"),
        (loaded, {"top": 1000}, "from 1 to 100"),
        (loaded, {"beem": 3}, "beem"),
        (translator("structural"), {}, "reads texts with heads"),
    ]:
        with pytest.raises(ConfigError, match=said):
            qkv.steps(run, TEXT, **options)
    with pytest.raises(ConfigError, match="steps is for a translator or a language model, and this run is an encoder"):
        qkv.steps(reader("bert", tmp_path), TEXT)
