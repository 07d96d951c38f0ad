"""A lesson's numbers are the model's own, for every kind of model; its questions follow from what it shows."""

import ast
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from inspected_models import ENCODERS, TEXT, TRANSLATORS, TREE, generator, reader, translator
from qkv.base.errors import ConfigError, DataError
from qkv.inference.lesson import DEFAULTS, default_sentences, hide_word, lesson
from qkv.lens.lesson import Lesson
from qkv.lens.lesson.page import PAGE, render_lesson
from qkv.lens.lesson.texts import bare, percent, shown, signed, written_so_far
from qkv.lens.page import VIEWER

GAP = "Paris is the [MASK] of France."
LESSON = Path(qkv.__file__).parent / "lens" / "lesson"
KINDS = [*TRANSLATORS, *(f"{name}, encoder" for name in ENCODERS if name != "xlnet"), "gpt"]


def made(name: str, folder: Path) -> Lesson:
    if name == "gpt":
        return lesson(generator(folder), ["The quick brown fox"])
    if name.endswith(", encoder"):
        return lesson(reader(name.removesuffix(", encoder"), folder), [GAP])
    return lesson(translator(name), [json.dumps({"text": TEXT, "heads": TREE.heads}) if name == "structural" else TEXT])


def pictures(example: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for step in example["steps"] for one in step["pictures"]}


def questions(example: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{step['name']} {one['name']}": one for step in example["steps"] for one in step["questions"]}


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.as_tensor(expected).float(), rtol=1e-3, atol=3e-4)


@pytest.mark.parametrize("name", KINDS)
def test_six_steps_with_the_models_own_numbers(name: str, tmp_path: Path) -> None:
    found = made(name, tmp_path)
    told = found.json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    (example,), (material,) = told["examples"], found.materials
    assert [step["name"] for step in example["steps"]] == ["vectors", "head", "scores", "sum", "layers", "output"]
    for step in example["steps"]:
        names = [one["name"] for one in step["questions"]]
        assert names and len({*names}) == len(names) and step["pictures"]
        rows = [row for picture in step["pictures"] if picture["kind"] == "vectors" for row in picture["rows"]]
        for one in (*step["pictures"], *rows):
            assert one.get("after") in (None, *names)
    assert_scores(material, pictures(example), questions(example))
    assert_sums(material, pictures(example), questions(example))
    assert_outputs(material, pictures(example), questions(example))


def assert_scores(material: Any, drawn: dict[str, Any], asked: dict[str, Any]) -> None:
    """The table is that of the head; its weights follow from its scores."""
    head, table = material.head, drawn["scores"]
    columns = {one["label"]: one["values"] for one in table["columns"]}
    keys = [number for key in table["keys"] for number, token in enumerate(distinct(head.keys)) if token == key]
    close(columns["weight"], head["softmax"]["weights"][keys])
    assert table["more"] == len(head.keys) - len(keys) and columns["weight"] == [round(x, 4) for x in columns["weight"]]
    exponentials = torch.tensor(columns["e^(s − max)"])
    assert float(exponentials.max()) == 1
    close(columns["weight"], exponentials * max(columns["weight"]))  # in the ratio of the exponentials
    share, largest = asked["scores share"], asked["scores largest"]
    close(share["answer"], max(columns["weight"]))
    assert largest["options"][largest["answer"]] == table["keys"][columns["weight"].index(max(columns["weight"]))]
    if "÷ √d" in columns:
        visible = [n for n, masked in enumerate(table["masked"]) if not masked]
        root = float(head["divide"]["sqrt_d"])
        close([columns["÷ √d"][n] * root for n in visible], [columns["q · k"][n] for n in visible])
        hidden = next(column for column in table["columns"] if column["label"] == "÷ √d")["hidden"]
        close(asked["scores divide"]["answer"], columns["÷ √d"][hidden[0]])


def distinct(tokens: list[str]) -> list[str]:
    names = [bare(token) for token in tokens]
    return [f"{name} ({n})" if names.count(name) > 1 else name for n, name in enumerate(names, 1)]


def assert_sums(material: Any, drawn: dict[str, Any], asked: dict[str, Any]) -> None:
    """The rows of the sum add up to z, which the head computed."""
    rows = torch.tensor([row["values"] for row in drawn["sum"]["rows"]])
    close(rows[-1].tolist(), material.head["weighted_sum"]["z"][:8])
    torch.testing.assert_close(rows[:-1].sum(0), rows[-1], atol=1e-3, rtol=0)
    close(asked["sum sum"]["answer"], rows[-1, 0])
    if "sum residual" in asked:
        before, added, total = (torch.tensor(row["values"]) for row in drawn["residual"]["rows"][:3])
        torch.testing.assert_close(before + added, total, atol=1e-3, rtol=0)
        close(asked["sum residual"]["answer"], total[0])
    if "head width" in asked:
        assert asked["head width"]["answer"] == drawn["qkv"]["rows"][0]["width"]
        assert asked["sum joined"]["answer"] == material.heads * drawn["qkv"]["rows"][0]["width"]


def assert_outputs(material: Any, drawn: dict[str, Any], asked: dict[str, Any]) -> None:
    """The probabilities are those of the model's own logits, and those of the last layer."""
    tokens = drawn["probabilities"]["tokens"]
    logits, position = torch.tensor([one["logit"] for one in tokens]), material.head.position
    p = [one["probability"] for one in tokens]
    torch.testing.assert_close(torch.tensor(p) / p[0], (logits - logits[0]).exp(), atol=5e-3, rtol=5e-2)
    assert p == sorted(p, reverse=True)
    question = asked["output softmax"]
    assert question["options"][question["answer"]] == ", ".join(percent(one) for one in p[:3])
    close(asked["output ratio"]["answer"], math.exp(float(material.predictions.logits[0] - material.predictions.logits[1])))
    guess = asked["layers next"]
    assert guess["options"][guess["answer"]].removeprefix("·") == tokens[0]["token"].removeprefix("·")
    if "layers" in drawn:
        last = drawn["layers"]["layers"][-1]
        assert last["top"][0][0] == bare(material.predictions.tokens[0]) and last["first"]
        assert last["probability"] == pytest.approx(p[0], abs=2e-3)
        first = [layer["first"] for layer in drawn["layers"]["layers"]].index(True)
        answer = asked["layers layer"]
        assert answer["options"][answer["answer"]]["values"] == {"layer": first + 1}
    assert position == material.last.position


@torch.no_grad()
def test_the_numbers_of_a_translator_are_those_of_its_network() -> None:
    model = translator("transformer")
    (material,) = lesson(model, [TEXT]).materials
    example = lesson(model, [TEXT]).json()["examples"][0]
    inspector: Any = model.inspect(TEXT)
    embedded = inspector.network.source_embedding.weight[inspector.texts["source"].ids[material.first.position]]
    rows = pictures(example)["vector"]["rows"]
    close(rows[0]["values"], embedded[:8])
    assert rows[0]["width"] == len(embedded)
    added = inspector.network.source_positions.of_rows(inspector.source)[0, material.first.position]
    close(rows[-1]["values"], (embedded * len(embedded) ** 0.5 + added)[:8])
    close(questions(example)["vectors position"]["answer"], rows[-1]["values"][0])
    own = inspector.logits()[material.head.position].softmax(-1).sort(descending=True).values
    close([one["probability"] for one in pictures(example)["probabilities"]["tokens"]], own[:6])
    weights = next(one.weights for one in inspector.maps() if (one.part, one.layer) == ("cross", material.head.layer))
    close(max(pictures(example)["scores"]["columns"][-1]["values"]), weights[material.head.head, material.head.position].max())
    assert pictures(example)["result"]["output"] == model.translate([TEXT])[0]


def test_the_search_is_the_one_that_writes_the_translation() -> None:
    model = translator("transformer")
    (material,) = lesson(model, [TEXT]).materials
    drawn = pictures(lesson(model, [TEXT]).json()["examples"][0])["search"]["rows"]
    path = [next(node for node in row if node["best"]) for row in drawn]
    assert material.search is not None and material.search.output == material.output
    best = [node for node in material.search.nodes if node.best][1:]
    assert [node["probability"] for node in path] == [round(math.exp(node.logprob), 4) for node in best][: len(path)]
    assert all(row[node["parent"]]["best"] for row, node in zip(drawn, path[1:], strict=False) if node["best"])
    assert all(0 <= node["parent"] < len(above) for above, row in itertools.pairwise(drawn) for node in row)


def test_the_tolerance_covers_what_follows_from_the_rounded_numbers(tmp_path: Path) -> None:
    asked = {
        f"{kind} {name}": one
        for kind in ("transformer", "gpt", "bert, encoder")
        for name, one in questions(made(kind, tmp_path / kind[:3]).json()["examples"][0]).items()
        if one["kind"] == "number"
    }
    for name, one in asked.items():
        values = {key: str(value).replace("−", "-") for key, value in one["asks"]["values"].items()}
        if name.endswith("divide"):
            computed = float(values["score"]) / float(values["root"])
        elif name.endswith("share"):
            computed = 1 / float(values["total"])
        elif name.endswith("product"):
            computed = float(values["a"]) * float(values["b"])
        elif name.endswith(("residual", "position")):
            computed = float(values["a"]) + float(values["b"])
        elif name.endswith(" sum"):
            computed = sum(float(one.strip("()")) for one in values["total"].split(" + "))
        else:
            continue
        assert abs(computed - one["answer"]) <= one["tolerance"], name
        assert one["tolerance"] <= max(0.05, 0.06 * abs(one["answer"])), name


def test_a_gpt_does_not_see_what_comes_later(tmp_path: Path) -> None:
    example = made("gpt", tmp_path).json()["examples"][0]
    asked, table = questions(example)["scores mask"], pictures(example)["scores"]
    hidden = {key for key, masked in zip(table["keys"], table["masked"], strict=True) if masked}
    assert [option in hidden for option in asked["options"]].index(True) == asked["answer"]
    assert sum(option in hidden for option in asked["options"]) == 1
    last = table["columns"][-1]["values"]
    assert all(last[n] == 0 for n, masked in enumerate(table["masked"]) if masked)


# Sentences


def test_an_encoder_hides_the_longest_word(tmp_path: Path) -> None:
    assert hide_word("Paris is the capital of France.") == ("Paris is the [MASK] of France.", "capital")
    assert hide_word("我在家。")[0].count("[MASK]") == 1
    found = lesson(reader("bert", tmp_path), ["Paris is the capital of France."])
    assert found.materials[0].text == GAP and found.materials[0].given == "capital"
    said = [one["values"] for one in pictures(found.json()["examples"][0])["result"]["says"]]
    assert said == [{"word": "capital"}]
    with pytest.raises(DataError, match="has no word of three letters to hide; write"):
        hide_word("a b, c.")


def test_sentences_are_dev_texts_or_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator("transformer")
    monkeypatch.chdir(tmp_path)
    assert default_sentences(model) == [*DEFAULTS["en"]]
    lines = ["too short\tx", "The fox jumps over the dog.\tx", "no full stop in this long line\tx", "A dog sees a lazy fox.\tx"]
    (tmp_path / "dev.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert default_sentences(model) == ["The fox jumps over the dog.", "A dog sees a lazy fox."]
    assert default_sentences(generator(tmp_path)) == ["A brown dog runs through the", "Two children are playing in the"]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("A dog.", r"lesson takes a list of sentences, got str; for one sentence, give \[sentence\]"),
        ([], "lesson takes 1 to 12 sentences, got 0"),
        (["a"] * 13, "lesson takes 1 to 12 sentences, got 13"),
        ([3], "lesson takes a list of sentences, and sentence 1 is int; give a str"),
    ],
)
def test_wrong_sentences_are_refused_in_one_line(sentences: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        lesson(translator("transformer"), sentences)
    assert "\n" not in str(refused.value)


def test_runs_without_a_lesson_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this run has no head that predicts it; use a pretrained BERT"):
        lesson(reader("xlnet", tmp_path), [GAP])
    with pytest.raises(DataError, match=r"a sentence has .* tokens, and a lesson shows 40 at most; give a shorter one"):
        lesson(generator(tmp_path), ["a fox " * 16])
    with pytest.raises(ConfigError, match="lesson takes the folder of a run or a loaded run, got int"):
        lesson(3)
    with pytest.raises(ConfigError, match="this model reads texts with heads; give sentences such as"):
        lesson(translator("structural"))
    with pytest.raises(ConfigError, match=r"save lesson.pdf: the name must end with .html or .json"):
        lesson(translator("transformer"), [TEXT]).save("lesson.pdf")


# The page and its words


def test_numbers_and_tokens_as_people_write_them() -> None:
    assert [shown(value) for value in (-0.001, -1.5, 2)] == ["0.00", "−1.50", "2.00"]
    assert signed(-0.5) == "(−0.50)" and signed(-0.001) == "0.00"
    assert [bare(token) for token in ("▁dog", "##ing", "▁", "a")] == ["dog", "ing", "␣", "a"]
    assert written_so_far(["<s>", "▁Ein", "▁br", "auner"]) == "Ein brauner"
    assert written_so_far(["[CLS]", "the", "fox", "##es"]) == "the foxes"


def texts_of_lessons() -> set[str]:
    """All texts that Python and JavaScript say in a lesson."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in LESSON.glob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "say"]
    found = {node.args[0].value for node in calls if isinstance(node.args[0], ast.Constant)}
    assert len(calls) == sum(isinstance(node.args[0], ast.Constant) for node in calls)
    for path in PAGE.glob("*.js"):
        found |= {*re.findall(r'\bsay\("((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8"))}
    return found  # type: ignore[return-value]


def test_everything_is_said_in_chinese_too() -> None:
    files = ("lesson.js", "lesson_questions.js")
    pattern = r'^ +"((?:[^"\\]|\\.)*)":\s*"((?:[^"\\]|\\.)*)",$'
    tables = [re.findall(pattern, (VIEWER / "chinese" / file).read_text(encoding="utf-8"), re.MULTILINE) for file in files]
    chinese = dict(itertools.chain(*tables))
    missing = texts_of_lessons() - chinese.keys()
    assert not missing, missing
    for english, text in chinese.items():
        assert {*re.findall(r"\{\w+\}", english)} == {*re.findall(r"\{\w+\}", text)}, english
        assert english == text or re.search(r"[\u4e00-\u9fff]|=", text), text


def test_hostile_texts_stay_in_their_place() -> None:
    nasty = '</script><script>alert(1)</script>" onload="x'
    told = json.loads(json.dumps(lesson(translator("transformer"), [TEXT]).json()))
    told["examples"][0]["text"] = told["run"] = nasty
    text = render_lesson(told)
    assert text.count("<script") == 3 and "alert(1)</script>" not in text
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and policy.count("sha256") == 5
    assert not re.search(r"\b(src|href)=|@import|url\(|fetch\(|XMLHttpRequest|import\(", text.split('<script id="values"')[0])
    for path in PAGE.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|localStorage|\"style\"", path.read_text("utf-8")), (
            path
        )


def test_saved_as_a_page_or_as_numbers(tmp_path: Path) -> None:
    found = qkv.lesson(translator("transformer"), [TEXT])
    page = found.save(tmp_path / "new" / "lesson.html")
    assert page.read_text(encoding="utf-8") == render_lesson(found.json())
    assert json.loads(found.save(tmp_path / "lesson.json").read_text(encoding="utf-8")) == found.json()
    assert repr(found).startswith("Lesson(transformer: 'The quick")
