"""qkv backtranslate and qkv distil: pairs that train reads, the same after any interruption, and nothing overwritten."""

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from interruptions import DIE_AT, leftovers
from qkv.base.errors import ConfigError, DataError
from qkv.base.locks import lock_file
from qkv.decoding.scoring import score
from qkv.inference.engines import pad
from qkv.jobs import synthesis
from qkv.jobs.synthesis import backtranslate, distil
from qkv.text.corpus import ParallelCorpusConfig, read_pairs
from workbench import WORDS, Commands

LINES = [" ".join(WORDS[(5 * i + 7 * k + i // 12) % 12] for k in range(2 + i % 4)) for i in range(100)]
SMALL_CHUNKS = "import qkv.jobs.synthesis\nqkv.jobs.synthesis.CHUNK = 16\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mono.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def test_pairs_are_read_by_train_as_they_are(run: Path, text: Path, tmp_path: Path) -> None:
    made = backtranslate(run, text, tmp_path / "pairs.tsv", beam=2)
    header, *pairs = rows(made)
    assert header == ["source", "target", "score"] and [target for _, target, _ in pairs] == LINES
    sources = qkv.load(run).translate(LINES, beam=2)
    assert [source for source, _, _ in pairs] == [f"<BT> {source.strip()}" for source in sources]
    found = [(pair.source, pair.target) for pair in read_pairs(ParallelCorpusConfig(pairs=str(made)))]
    assert found == [(source, target) for source, target, _ in pairs]


@pytest.mark.parametrize("decoding", [{"beam": 2, "length_penalty": 0.4}, {"sampling": True}], ids=["beam", "sampling"])
def test_a_score_is_the_log_probability_per_token(run: Path, text: Path, tmp_path: Path, decoding: dict[str, Any]) -> None:
    decoding["max_extra"] = 150  # long enough for all to end
    made = backtranslate(run, text, tmp_path / "pairs.tsv", tag="", **decoding)
    translator = qkv.load(run)
    outputs = [best for (best,) in translator.n_best(LINES, **decoding)]
    sources, targets = zip(*(output.pieces[0] for output in outputs), strict=True)
    ends = {"bos": translator.tokenizers.target.bos, "eos": translator.tokenizers.target.eos}
    with torch.inference_mode():
        wanted = score(translator.engine.model, *pad(sources, torch.device("cpu")), list(targets), **ends)  # type: ignore[attr-defined]
    known = {
        (output.text.strip(), line): scored.logprob / (len(target) + 1)
        for output, line, scored, target in zip(outputs, LINES, wanted, targets, strict=True)
    }
    pairs = rows(made)[1:]
    assert len(pairs) > 80
    assert max(abs(float(found) - known[source, target]) for source, target, found in pairs) < 1e-3


def test_samples_depend_on_the_seed_and_the_line_alone(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = backtranslate(run, text, tmp_path / "whole.tsv").read_bytes()
    monkeypatch.setattr(synthesis, "CHUNK", 16)
    assert backtranslate(run, text, tmp_path / "chunks.tsv").read_bytes() == whole
    assert backtranslate(run, text, tmp_path / "seed.tsv", seed=2).read_bytes() != whole


def test_what_cannot_be_used_is_dropped_and_counted(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "mono.txt"
    path.write_bytes(b"sun rain\n\n" + b"rain " * 300 + b"\n\xff\nold bird\n")
    made = backtranslate(run, path, tmp_path / "pairs.tsv", beam=2)
    dropped = {reason: found["count"] for reason, found in manifest(made)["report"]["dropped"].items()}
    assert dropped == {"empty side": 1, "too long (characters)": 1, "undecodable bytes": 1} and len(rows(made)) == 3
    scores = sorted(float(value) for _, _, value in rows(made)[1:])
    better = backtranslate(run, path, tmp_path / "better.tsv", beam=2, min_score=scores[1] - 1e-3)
    assert [float(value) for _, _, value in rows(better)[1:]] == scores[1:]
    assert manifest(better)["report"]["dropped"]["score below " + f"{scores[1] - 1e-3:g}"]["count"] == 1


def manifest(pairs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pairs.with_name(f"{pairs.name}.json").read_text())
    return found


def test_several_translations_of_a_line_are_several_pairs(run: Path, text: Path, tmp_path: Path) -> None:
    pairs = rows(backtranslate(run, text, tmp_path / "pairs.tsv", n_best=3, tag=""))[1:]
    assert len({(source, target) for source, target, _ in pairs}) <= len(pairs) and len(pairs) > 150


def test_text_comes_from_files_patterns_and_standard_input(commands: Commands, run: Path, text: Path, tmp_path: Path) -> None:
    wanted = backtranslate(run, text, tmp_path / "python.tsv").read_bytes()
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.txt").write_text("".join(f"{line}\n" for line in LINES[:40]))
    (parts / "b.txt.gz").write_bytes(gzip.compress("".join(f"{line}\r\n" for line in LINES[40:]).encode()))
    for name, arguments, stdin in (("files", [parts / "*"], b""), ("stdin", ["-"], text.read_bytes())):
        done = commands.run("backtranslate", run, *arguments, "--out", tmp_path / f"{name}.tsv", stdin=stdin)
        assert done.code == 0 and "100 of 100 lines" in done.err, done.err
        assert (tmp_path / f"{name}.tsv").read_bytes() == wanted


# Interruptions


def test_killed_at_each_write_it_goes_on_and_gives_the_same_file(
    commands: Commands, run: Path, text: Path, tmp_path: Path
) -> None:
    wanted, out = backtranslate(run, text, tmp_path / "whole.tsv").read_bytes(), tmp_path / "killed" / "pairs.tsv"
    codes = []
    for count in [*range(1, 10), 12, 20, 100]:
        first = SMALL_CHUNKS + DIE_AT.format(count=count)
        codes.append(commands.run("backtranslate", run, text, "--out", out, first=first).code)
    assert set(codes) == {0, -signal.SIGKILL} and codes.count(-signal.SIGKILL) == 11
    assert out.read_bytes() == wanted and not leftovers(out.parent)
    assert {path.name for path in out.parent.iterdir()} == {"pairs.tsv", "pairs.tsv.json"}


def test_a_finished_file_stays_as_it_is(commands: Commands, run: Path, text: Path, tmp_path: Path) -> None:
    out = backtranslate(run, text, tmp_path / "pairs.tsv")
    before = out.stat().st_mtime_ns, manifest(out)
    done = commands.run("backtranslate", run, text, "--out", out)
    assert done.code == 0 and "is finished" in done.err and (out.stat().st_mtime_ns, manifest(out)) == before
    for options, message in ((["--tag", ""], "tag: '<BT>' -> ''"), (["--set", "seed=2"], "decoding.seed: 1 -> 2")):
        assert message in commands.run("backtranslate", run, text, "--out", out, *options).complaint()
    text.write_text("another text\n")
    with pytest.raises(ConfigError, match="is made by another command: other text"):
        backtranslate(run, text, out)
    assert (out.stat().st_mtime_ns, manifest(out)) == before


def test_what_is_not_ours_is_never_overwritten(run: Path, text: Path, tmp_path: Path) -> None:
    for name in ("pairs.tsv", "pairs.tsv.unfinished"):
        theirs = tmp_path / name
        theirs.write_text("mine\n")
        with pytest.raises(ConfigError, match="says that it is ours; choose another --out"):
            backtranslate(run, text, tmp_path / "pairs.tsv")
        assert theirs.read_text() == "mine\n"
        theirs.unlink()
    with (tmp_path / "pairs.tsv.unfinished").open("ab") as held:
        lock_file(held)
        with pytest.raises(ConfigError, match="is being written by another process"):
            backtranslate(run, text, tmp_path / "pairs.tsv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tag": " x"}, "the tag ' x' has white space"),
        ({"beam": 2, "temperature": 0.5}, "temperature acts in sampling only"),
        ({"engine": "ctranslate2"}, "sampling is not for the engine ctranslate2"),
        ({"colour": 1}, "unknown key 'colour'"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    run: Path, text: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        backtranslate(run, text, tmp_path / "out" / "pairs.tsv", **options)
    with pytest.raises(DataError, match="by its name a file of pairs"):
        backtranslate(run, run.parent / "train.tsv", tmp_path / "out" / "pairs.tsv")
    assert not (tmp_path / "out").exists()


# Distillation


def student(recipe: Path, **changes: Any) -> dict[str, Any]:
    return {
        "data.dev": str(recipe.parent / "dev.tsv"),
        "data.test": None,
        "training.steps": 6,
        "training.validate_every": 6,
    } | changes


def command(recipe: Path, run: Path, text: Path, out: Path) -> list[object]:
    settings = [f"{key}={'null' if value is None else value}" for key, value in student(recipe).items()]
    return ["distil", run, text, "--recipe", recipe.parent / "student.yaml", "--out", out,
            *(word for setting in settings for word in ("--set", setting))]  # fmt: skip


@pytest.fixture
def values(recipe: Path) -> dict[str, Any]:
    """The recipe of a student: that of the teacher without data.train."""
    import yaml

    found: dict[str, Any] = yaml.safe_load(recipe.read_text())
    del found["data"]["train"]
    (recipe.parent / "student.yaml").write_text(yaml.safe_dump(found))
    return found


def test_a_student_learns_the_teachers_translations(
    run: Path, recipe: Path, values: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    real = {"pairs": str(recipe.parent / "train.tsv"), "weight": 0.5}
    out = distil(run, text, values, tmp_path / "student", pairs=real, settings=student(recipe), beam=3)
    teacher = [translation.strip() for translation in qkv.load(run).translate(LINES, beam=3)]
    made = tmp_path / "student.teacher.tsv"
    assert [(source, target) for source, target, _ in rows(made)[1:]] == list(zip(LINES, teacher, strict=True))
    corpora = qkv.load(out).recipe.data.train
    assert [(corpus.pairs, corpus.weight) for corpus in corpora] == [(str(made), 1.0), (real["pairs"], 0.5)]
    before = made.stat().st_mtime_ns, (out / "result.json").stat().st_mtime_ns
    distil(run, text, values, out, pairs=real, settings=student(recipe), beam=3)
    assert (made.stat().st_mtime_ns, (out / "result.json").stat().st_mtime_ns) == before
    with pytest.raises(ConfigError, match=r"is made by another command: decoding\.beam: 3 -> 2"):
        distil(run, text, values, out, pairs=real, settings=student(recipe), beam=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.dev": "nowhere.tsv"}, "nowhere.tsv: no such file"),
        ({"model.width": 15}, "width 15"),
        ({"data.train": "x.tsv"}, "data.train is the teacher's pairs and those of --pairs"),
        ({"data": {"train": "x.tsv"}}, "data.train is the teacher's pairs and those of --pairs"),
        ({"start": "nowhere", "tokenizer": None, "model": None}, "nowhere: no such run folder"),
    ],
)
def test_the_student_is_checked_before_the_teacher_begins(
    run: Path, recipe: Path, values: dict[str, Any], text: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, DataError, qkv.base.errors.CheckpointError), match=message):
        distil(run, text, values, tmp_path / "student", settings=student(recipe, **changes))
    assert [path for path in tmp_path.iterdir() if path.name.startswith("student")] == []


def test_a_student_that_is_no_translator(run: Path, text: Path, tmp_path: Path) -> None:
    for name, job in (("gpt-mini", "pretraining"), ("finetune", "finetuning")):
        with pytest.raises(ConfigError, match=f"^{name}: a recipe for {job}; a student is a translator, such as"):
            distil(run, text, name, tmp_path / "student")


def test_languages_are_those_of_the_teacher(
    run: Path, recipe: Path, values: dict[str, Any], text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = qkv.load(run)
    data = translator.recipe.data.model_copy(update={"languages": ("en", "la")})
    translator.recipe = translator.recipe.model_copy(update={"data": data})
    monkeypatch.setattr(synthesis, "load_translator", lambda *_: translator)
    with pytest.raises(ConfigError, match=r"the teacher translates en to la; leave it out"):
        distil(run, text, values, tmp_path / "student", settings=student(recipe, **{"data.languages": ["en", "fr"]}))
    made = distil(run, text, values, tmp_path / "student", settings=student(recipe), beam=1)
    assert qkv.load(made).recipe.data.languages == ("en", "la")


def test_a_killed_distillation_goes_on(
    commands: Commands, run: Path, recipe: Path, values: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert commands.run(*command(recipe, run, text, whole), first=SMALL_CHUNKS).code == 0
    codes = []
    for count in (8, 20, 40, 80, 1000):
        codes.append(commands.run(*command(recipe, run, text, killed), first=SMALL_CHUNKS + DIE_AT.format(count=count)).code)
    assert codes[-1] == 0 and codes.count(-signal.SIGKILL) >= 4
    pairs, weights = (
        [(tmp_path / f"{name}{file}").read_bytes() for name in ("whole", "killed")]
        for file in (".teacher.tsv", "/model.safetensors")
    )
    assert pairs[0] == pairs[1] and weights[0] == weights[1] and not leftovers(tmp_path)
