"""A sweep trains each trial once, goes on after faults, and names the best setting."""

import json
import signal
from pathlib import Path

import pytest
import yaml

import qkv
from qkv.base.errors import ConfigError, TrainingError
from qkv.jobs import optuna_search, sweep, trials
from qkv.jobs.trials import lower_is_better
from qkv.training.log import read_metrics
from workbench import Commands, commands_in, wait_until, write_recipe

RATE = "training.learning_rate"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_recipe(tmp_path_factory.mktemp("sweep"), training={"steps": 20, "validate_every": 10}))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sweeps in this process, whose trainings only write figures; the names of the folders trained."""
    names: list[str] = []

    def train(recipe, run, tracker=None):
        names.append(run.name)
        rate = recipe.training.learning_rate
        if rate == 0.5:
            raise TrainingError("loss or gradient was not finite")
        if rate == 0.6:
            raise MemoryError("too little memory")
        run.mkdir(parents=True)
        (run / "recipe.yaml").write_text("x")
        with (run / "metrics.jsonl").open("w") as log:
            for step in (10, 20, 30):
                line = {"step": step, "dev_loss": rate * step, "dev_chrf": 100 * rate + recipe.seed - abs(step - 20)}
                log.write(json.dumps(line) + "\n")
                if tracker is not None:
                    tracker.write(step, line)
        (run / "result.json").write_text("{}")

    def answers(work, setup, tasks, options):
        worker = work(**json.loads(json.dumps(setup)))
        for number, task in enumerate(tasks):
            yield number, json.loads(json.dumps(worker(**task)))

    monkeypatch.setattr(trials, "train", train)
    monkeypatch.setattr(sweep, "_answers", answers)
    return names


def test_every_combination_is_trained_once_and_the_best_is_named(recipe, trained, tmp_path):
    said: list[str] = []
    tries = {RATE: [0.1, 0.2], "model.heads": "2..4"}
    found = qkv.sweep(recipe, tmp_path / "s", tries, {"score_dev": 4}, said.append, seeds=2)
    assert len(trained) == len(set(trained)) == 8  # three heads do not divide the width
    assert [line for line in said if line.startswith("refused: ")] == [
        f"refused: learning_rate {rate}, heads 3: {recipe}: model.width 16 does not split into 3 heads; choose heads that divide "
        "it"
        for rate in (0.1, 0.2)
    ]
    assert found.best and found.best["settings"] == {RATE: 0.2, "model.heads": 2}
    assert found.best["value"] == pytest.approx(20 + 1.5)  # at step 20, mean of seeds 1 and 2
    assert found.best["deviation"] == pytest.approx(0.5**0.5)
    assert found.metric == "dev_chrf" and {one.step for one in found.trials if one.value} == {20}
    saved = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert saved["best"] == found.best and len(saved["trials"]) == 12
    best = Path(found.command.split()[2]).parent
    assert best.is_dir() and "seed=2" in best.name and "learning_rate=0.2" in best.name
    page = (tmp_path / "s" / "report.html").read_text()
    assert "dev_chrf over model.heads" in page and "does not split into 3 heads" in page and found.command in page


def test_a_failed_trial_is_recorded_and_the_others_go_on(recipe, trained, tmp_path):
    tries = {RATE: [0.5, 0.6, 0.3]}
    found = qkv.sweep(recipe, tmp_path / "s", tries, say=lambda line: None)
    assert [(one.status, one.message) for one in found.trials] == [
        ("failed", "loss or gradient was not finite"),
        ("failed", "MemoryError: too little memory"),
        ("finished", ""),
    ]
    assert found.best and found.best["settings"] == {RATE: 0.3}
    assert "MemoryError" in next((tmp_path / "s" / "logs").glob("*0.6*")).read_text()
    qkv.sweep(recipe, tmp_path / "s", tries, say=lambda line: None)
    assert len(trained) == 3  # none again
    qkv.sweep(recipe, tmp_path / "s", tries, say=lambda line: None, retry=True)
    assert len(trained) == 5


def test_a_sweep_that_was_stopped_or_extended_trains_what_is_missing(recipe, trained, tmp_path):
    def stop(line: str) -> None:
        if line.startswith("2/4"):
            raise KeyboardInterrupt

    out, tries = tmp_path / "s", {RATE: [0.1, 0.2, 0.3, 0.4]}
    with pytest.raises(KeyboardInterrupt):
        qkv.sweep(recipe, out, tries, say=stop)
    (out / "sweep.json").unlink()  # as if it was killed before the first one was recorded
    said: list[str] = []
    found = qkv.sweep(recipe, out, tries, say=said.append)
    assert len(trained) == len(set(trained)) == 4 and found.best and found.best["settings"] == {RATE: 0.4}
    found = qkv.sweep(recipe, out, {RATE: [0.05, *tries[RATE]]}, say=said.append)
    assert len(trained) == 5 and len(found.trials) == 5 and "5 trials, of which 4 were trained before" in said
    assert found.trials[-1].value == pytest.approx(41)


def test_draws_go_on(recipe, trained, tmp_path):
    few = qkv.sweep(recipe, tmp_path / "s", {RATE: "1e-3..1e-1"}, say=lambda line: None, random=3)
    more = qkv.sweep(recipe, tmp_path / "s", {RATE: "1e-3..1e-1"}, say=lambda line: None, random=5)
    assert [one.settings for one in more.trials][:3] == [one.settings for one in few.trials] and len(trained) == 5


def test_a_metric_may_be_chosen_and_a_wrong_one_is_named(recipe, trained, tmp_path):
    found = qkv.sweep(recipe, tmp_path / "s", {RATE: [0.1, 0.2]}, say=lambda line: None, metric="dev_loss")
    assert found.best and found.best["settings"] == {RATE: 0.1} and found.trials[0].step == 10
    with pytest.raises(ConfigError, match="--metric dev_bleu: the trials have dev_loss, dev_chrf"):
        qkv.sweep(recipe, tmp_path / "s", {RATE: [0.1, 0.2]}, say=lambda line: None, metric="dev_bleu")
    assert len(trained) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"random": 3, "optuna": 3}, "two ways"),
        ({"optuna": 3, "seeds": 2}, "leave --seeds out"),
        ({"random": 0}, "from 1 on"),
        ({"sedes": 3}, "no option sedes"),
        ({"settings": {"data.train": "none.tsv"}}, "no trial can be trained; learning_rate 0.1: none.tsv: no such file"),
    ],
)
def test_mistakes_show_before_any_training(recipe, trained, tmp_path, options, says):
    with pytest.raises(ConfigError, match=says):
        qkv.sweep(recipe, tmp_path / "s", {RATE: [0.1]}, say=lambda line: None, **options)
    assert trained == []


def test_a_folder_with_other_files_is_refused(recipe, trained, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not the folder of a sweep"):
        qkv.sweep(recipe, tmp_path, {RATE: [0.1]})


def test_whether_lower_is_better():
    better = {"dev_loss": True, "dev_bleu": False, "dev_ter": True, "dev_perplexity": True, "dev_accuracy": False}
    assert {name: lower_is_better(name) for name in better} == better


def test_optuna_learns_prunes_and_goes_on(recipe, trained, tmp_path):
    pytest.importorskip("optuna")
    tries, out = {RATE: "1e-3..0.4", "model.heads": [2, 3, 4]}, tmp_path / "s"
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):

        def stop(line: str) -> None:
            if line.startswith("10/"):
                raise KeyboardInterrupt

        qkv.sweep(recipe, out, tries, say=stop, optuna=16)
    found = qkv.sweep(recipe, out, tries, say=said.append, optuna=16)
    assert len(found.trials) == 16 and len(trained) == len(set(trained))
    statuses = [one.status for one in found.trials]
    assert {"finished", "pruned", "refused"} == set(statuses)
    assert all(one.settings["model.heads"] == 3 for one in found.trials if one.status == "refused")
    pruned = [one for one in found.trials if one.status == "pruned"]
    assert all("below the median" in one.message and one.step in (10, 20, 30) for one in pruned)
    assert found.best and found.best["value"] == max(one.value for one in found.trials if one.status == "finished")
    assert qkv.sweep(recipe, out, tries, say=said.append, optuna=16).trials == found.trials
    with pytest.raises(ConfigError, match="holds trials of another recipe, metric or other values"):
        qkv.sweep(recipe, out, {RATE: "1e-3..0.5"}, say=said.append, optuna=16)


def test_without_optuna_one_line_says_what_to_install(recipe, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'qkv\[optuna\]'"):
        optuna_search.require_optuna()
    with pytest.raises(ConfigError, match=r"pip install 'qkv\[optuna\]'"):
        qkv.sweep(recipe, tmp_path / "s", {RATE: [0.1]}, say=lambda line: None, optuna=2)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return commands_in(tmp_path_factory.getbasetemp())


def test_a_killed_sweep_resumes_its_trial(commands, recipe, tmp_path):
    """A real training by a real worker is killed in its middle, and ends as if it had not been."""
    values = yaml.safe_load(Path(recipe).read_text())
    values["training"] |= {"steps": 200, "save_every": 10, "validate_every": 100}
    path, out = tmp_path / "recipe.yaml", tmp_path / "s"
    path.write_text(yaml.safe_dump(values))
    command = ("sweep", path, "--try", f"{RATE}=0.01", "--out", out)
    started = commands.start(*command)
    wait_until(lambda: list(out.glob("trials/*/checkpoints/[!.]*")))
    started.signal(signal.SIGKILL)
    assert started.result().code == -signal.SIGKILL
    (first,) = (out / "trials").iterdir()
    assert not (first / "result.json").exists()
    done = commands.run(*command)
    assert done.code == 0, done.err
    assert "resuming from step" in (out / "logs" / f"{first.name}.txt").read_text()
    assert [line["step"] for line in read_metrics(first) if "loss" in line] == list(range(1, 201))
    saved = json.loads((out / "sweep.json").read_text())
    assert [one["status"] for one in saved["trials"]] == ["finished"]
    assert f"best: qkv train {out}/trials/" in done.out
