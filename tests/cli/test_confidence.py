"""Confidence from training to the command line, on a language of which some words have a translation and others any."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import qkv
from qkv.base.errors import CheckpointError, ConfigError
from qkv.inference.confidence import CONFIDENCE, GOOD_CHRF
from qkv.inference.translator import Translator
from qkv.text.metrics import roc_auc
from qkv.text.translation_metrics import sentence_chrf
from workbench import TARGETS, WORDS, Commands, write_recipe

KNOWN = 8  # words with one translation; that of the others is drawn anew each time


def write_corpus(folder: Path) -> None:
    rng = random.Random(1)
    for name, count in {"train": 1500, "dev": 200, "test": 200}.items():
        lines: dict[str, str] = {}
        while len(lines) < count:
            words = WORDS if rng.random() < 0.5 else WORDS[:KNOWN]
            chosen = [words.index(rng.choice(words)) for _ in range(rng.randint(2, 5))]
            targets = [TARGETS[i] if i < KNOWN else rng.choice(TARGETS) for i in chosen]
            lines[" ".join(WORDS[i] for i in chosen)] = " ".join(targets)
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in lines.items()))


def read_pairs(folder: Path) -> list[tuple[str, str]]:
    return [(source, target) for source, target in (line.split("\t") for line in (folder / "test.tsv").read_text().splitlines())]


@pytest.fixture(scope="module")
def run(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned its confidence; tests must not change it."""
    folder = tmp_path_factory.mktemp("confidence")
    write_corpus(folder)
    training = {"steps": 300, "batch_tokens": 500, "validate_every": 300, "save_every": 100}
    recipe = write_recipe(folder, model={"width": 32, "feedforward": 64}, training=training, score_dev=1)  # type: ignore[arg-type]
    done = commands.run("train", recipe, "--out", folder / "run")
    assert done.code == 0, done.err
    assert "confidence of translations: AUC" in done.out + done.err
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return qkv.load(run)  # type: ignore[return-value]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(run, tmp_path / "run"))


def test_right_translations_get_more_confidence_than_wrong_ones(translator: Translator, run: Path) -> None:
    pairs = read_pairs(run.parent)
    outputs = [best for (best,) in translator.n_best([source for source, _ in pairs], confidence=True)]
    good = [sentence_chrf(output.text, [target]) >= GOOD_CHRF for output, (_, target) in zip(outputs, pairs, strict=True)]
    found = [output.confidence for output in outputs]
    assert all(p is not None and 0 <= p <= 1 for p in found)
    assert 20 < sum(good) < 180
    assert roc_auc(found, good) > 0.85  # type: ignore[arg-type]
    assert abs(np.mean(found) - np.mean(good)) < 0.1  # type: ignore[arg-type]
    different = [" ".join(WORDS[KNOWN:]), " ".join(WORDS[:4])]
    [unsure], [sure] = translator.n_best(different, confidence=True)
    assert sure.confidence > unsure.confidence + 0.3  # type: ignore[operator]


def test_confidence_does_not_change_translations_and_is_not_computed_unasked(translator: Translator) -> None:
    texts = ["sun rain", "", "house river stone", "bird"]
    plain, judged = (translator.n_best(texts, n_best=2, confidence=wanted) for wanted in (False, True))
    assert [[(o.text, o.score) for o in each] for each in plain] == [[(o.text, o.score) for o in each] for each in judged]
    assert all(output.confidence is None for each in plain for output in each)
    assert judged[1][0].confidence is None  # nothing was translated
    alone = [translator.n_best([text], n_best=2, confidence=True)[0] for text in texts]
    for one, two in zip(alone, judged, strict=True):
        assert [o.confidence for o in one] == pytest.approx([o.confidence for o in two], abs=1e-5)


def test_a_text_of_several_parts_is_judged_over_all_of_them(translator: Translator) -> None:
    sure, unsure = (output.pieces for ((output,),) in (translator.n_best([text]) for text in ("sun rain", "house river stone")))
    both, first, second = translator.confidences([(*sure, *unsure), sure, unsure])
    assert both is not None and first is not None and second is not None
    assert both < first
    whole, one, two = translator.statistics([(*sure, *unsure), sure, unsure])
    assert whole.logprob == pytest.approx(one.logprob + two.logprob) and whole.lowest == min(one.lowest, two.lowest)


def test_the_file_belongs_to_the_weights(copy: Path, commands: Commands) -> None:
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(CheckpointError, match="made for other weights"):
        qkv.load(copy).n_best(["sun"], confidence=True)  # type: ignore[union-attr]
    done = commands.run("translate", copy, "--scores", stdin=b"sun rain\n")
    assert done.code == 0 and float(done.out.split("\t")[0]) < 0  # the score of the search
    assert done.err.startswith("qkv: --scores prints scores of the search") and done.err.count("\n") == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"good_chrf": 1}', "\ud800"])
def test_a_damaged_file_is_one_line(copy: Path, content: str) -> None:
    (copy / CONFIDENCE).write_text(content, errors="surrogatepass")
    with pytest.raises(CheckpointError, match="damaged, or made by another version"):
        qkv.load(copy).n_best(["sun"], confidence=True)  # type: ignore[union-attr]


def test_translate_prints_probabilities(commands: Commands, run: Path, translator: Translator) -> None:
    done = commands.run("translate", run, "--scores", "--n-best", 2, stdin=b"sun rain\n\nhouse river stone\n")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows[2:4]] == ["", ""]  # of the empty line
    wanted = translator.n_best(["sun rain", "house river stone"], n_best=2, confidence=True)
    found = [(row[1], float(row[0])) for row in rows if row[0]]
    assert [text for text, _ in found] == [o.text for each in wanted for o in each]
    assert [p for _, p in found] == pytest.approx([o.confidence for each in wanted for o in each], abs=1e-3)


def test_evaluate_shows_how_good_it_is(commands: Commands, run: Path) -> None:
    done = commands.run("evaluate", run, "--calibration", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["calibration"]
    assert found["texts"] == sum(b["count"] for b in found["bins"]) == 200
    assert found["auc"] > 0.85 and found["calibration_error"] < 0.15
    assert found["confident_half"] > found["other_half"] + 10
    shown = commands.run("evaluate", run, "--calibration").out
    assert f"AUC {found['auc']:.3f}" in shown and "predicted" in shown


def test_the_report_draws_it(run: Path) -> None:
    page = (run / "report.html").read_text()
    bins = json.loads((run / CONFIDENCE).read_text())["reliability"]["bins"]
    assert "<h2>Confidence</h2>" in page
    assert page.count("<title>predicted ") == len(bins)


def test_calibrate_writes_the_file_of_a_run_without_one(commands: Commands, copy: Path, run: Path) -> None:
    (copy / CONFIDENCE).unlink()
    done = commands.run("translate", copy, "--scores", stdin=b"sun rain\n")
    assert "has no calibration of confidence" in done.err and float(done.out.split("\t")[0]) < 0
    assert "has no calibration of confidence" in commands.run("evaluate", copy, "--calibration").complaint()
    with pytest.raises(ConfigError, match="no calibration of confidence; qkv evaluate RUN"):
        qkv.load(copy).n_best(["sun"], confidence=True)  # type: ignore[union-attr]
    done = commands.run("evaluate", copy, "--data", copy / "missing.tsv", "--calibrate")
    assert done.code == 2 and not (copy / CONFIDENCE).exists()
    done = commands.run("evaluate", copy, "--calibrate")  # by default the recipe's dev set
    assert done.code == 0 and "AUC" in done.out, done.err
    written = (copy / CONFIDENCE).read_text()
    assert json.loads(written) == json.loads((run / CONFIDENCE).read_text())  # what training learned from the same texts
    assert "exists already" in commands.run("evaluate", copy, "--calibrate").complaint()
    assert (copy / CONFIDENCE).read_text() == written


def test_too_few_texts_and_wrong_options_are_one_line(commands: Commands, copy: Path, tmp_path: Path) -> None:
    (copy / CONFIDENCE).unlink()
    few, wrong = tmp_path / "few.tsv", tmp_path / "wrong.tsv"
    few.write_text("sun\tsol\n" * 150 + "rain\tpluvia\n")
    assert "100 different texts, got 2" in commands.run("evaluate", copy, "--data", few, "--calibrate").complaint()
    wrong.write_text("".join(f"sun {'rain ' * (n % 9)}tree {n}\tzzz\n" for n in range(120)))
    assert "0 of 120 translations are good" in commands.run("evaluate", copy, "--data", wrong, "--calibrate").complaint()
    assert "give one" in commands.run("evaluate", copy, "--calibrate", "--calibration").complaint()
    assert not (copy / CONFIDENCE).exists()
