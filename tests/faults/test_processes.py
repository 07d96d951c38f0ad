"""Several processes train the same model as one, and stop together."""

import os
import signal
from pathlib import Path

import pytest
import yaml

from interruptions import assert_same, free_port, results, together
from workbench import Commands, RunningCommand, metrics_without_times, step_reached, wait_until, weights, write_recipe

SAME = {"training": {"steps": 30, "averaging": "none"}}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("processes"), **SAME)


@pytest.fixture(scope="module")
def one_process(commands: Commands, recipe: Path) -> Path:
    """The run of a single process."""
    run = recipe.parent / "alone"
    assert commands.run("train", recipe, "--out", run, QKV_CACHE=str(recipe.parent / "cache")).code == 0
    return run


def test_two_processes_are_one_with_the_same_batch(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    """As if each ran on a machine of its own."""
    first = "import os, platform\nplatform.node = lambda: 'machine-' + os.environ['RANK']"
    done = results(together(commands, recipe, tmp_path / "two", recipe.parent / "cache", first=first))
    assert [one.code for one in done] == [0, 0], done[0].err
    assert_same(one_process, tmp_path / "two")
    assert done[1].err == ""  # only the first process prints


def test_two_processes_add_the_penalty_towards_the_start_once(
    commands: Commands, recipe: Path, one_process: Path, tmp_path: Path
) -> None:
    """Whole and sharded, in micro-batches, with averaged weights."""
    values = yaml.safe_load(recipe.read_text())
    training = {
        **values["training"], "start_penalty": 3.0, "steps": 10, "averaging": "ema", "accumulate": 2, "learning_rate": 0.002
    }  # fmt: skip
    adapted = tmp_path / "adapted.yaml"
    adapted.write_text(yaml.safe_dump({"start": str(one_process), "data": values["data"], "training": training, "score_dev": 4}))
    cache = recipe.parent / "cache"
    assert commands.run("train", adapted, "--out", tmp_path / "one", QKV_CACHE=str(cache)).code == 0
    for shard in ("false", "true"):
        done = results(together(commands, adapted, tmp_path / shard, cache, more=("--set", f"training.shard={shard}")))
        assert [one.code for one in done] == [0, 0], done[0].err
        assert_same(tmp_path / "one", tmp_path / shard)


@pytest.mark.parametrize("shard", ["false", "true"])
def test_as_many_processes_as_rows(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path, shard: str) -> None:
    """Batches have at most three rows, so that the third process sometimes has none, and a fourth one would never have any."""
    cache, more = recipe.parent / "cache", ("--set", f"training.shard={shard}")
    done = results(together(commands, recipe, tmp_path / "three", cache, count=3, more=more))
    assert [one.code for one in done] == [0, 0, 0], done[2].err
    assert_same(one_process, tmp_path / "three")
    done = results(together(commands, recipe, tmp_path / "four", cache, count=4, more=more))
    assert "4 processes share batches of 3 rows" in done[0].complaint()
    assert [(one.code, one.err) for one in done[1:]] == 3 * [(2, "")]


def test_a_run_may_change_its_number_of_processes(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    """Two sharded processes are killed, then one, then three end it; the parts of checkpoints are read by any number."""
    run, cache = tmp_path / "run", recipe.parent / "cache"
    started = together(commands, recipe, run, cache, more=("--set", "training.shard=true"))
    wait_until(lambda: any(run.glob("checkpoints/step-*/model-00002-of-00002.safetensors")))
    for one in started:
        one.signal(signal.SIGKILL)
    results(started)
    alone = commands.start("train", recipe, "--out", run, QKV_CACHE=str(cache))
    wait_until(lambda: any(run.glob("checkpoints/step-*/model.safetensors")))
    alone.signal(signal.SIGKILL)
    alone.result()
    assert [one.code for one in results(together(commands, recipe, run, cache, count=3))] == [0, 0, 0]
    assert_same(one_process, run)


OUT_OF_MEMORY = """
import os, torch
from qkv.training import exchange, gradients
exchange.BUCKET_BYTES = 4096  # several buckets
plain, calls = gradients.GradientAccumulator.backward, 0
def backward(self, *args, **options):
    global calls
    calls += 1
    def fail(gradient):
        raise torch.OutOfMemoryError("CUDA out of memory")
    hook = self.model.encoder[0].feedforward.up.weight.register_hook(fail) if calls == 5 else None
    try:
        plain(self, *args, **options)
    finally:
        if hook:
            hook.remove()
if os.environ["RANK"] == "0":
    gradients.GradientAccumulator.backward = backward
"""


def test_memory_that_runs_out_in_one_process_splits_the_batch_in_all(
    commands: Commands, recipe: Path, one_process: Path, tmp_path: Path
) -> None:
    """The first process, which has two rows, fails in its backward pass when the decoder's gradients are on their way."""
    done = results(together(commands, recipe, tmp_path / "run", recipe.parent / "cache", first=OUT_OF_MEMORY))
    assert [one.code for one in done] == [0, 0], done[1].err
    assert done[0].err.count("from here on it is computed in 2 parts") == 1
    assert_same(one_process, tmp_path / "run")


def test_one_line_from_all_processes(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """A mistake that all make, or one of them, is reported once, and all end."""
    run, cache = tmp_path / "run", recipe.parent / "cache"
    other_torch = "import os, torch\nif os.environ['RANK'] == '1': torch.__version__ = '2.0'"
    other_steps = "import os, sys\nif os.environ['RANK'] == '1': sys.argv += ['--set', 'training.steps=7']"
    for first, more, rank, says in (
        ("", ("--set", "training.stepz=7"), 0, "training.stepz"),
        ("", ("--set", "data.train=none.tsv"), 0, "none.tsv"),
        (other_torch, (), 1, "has torch 2.0, Python"),
        (other_steps, (), 1, "has another recipe than process 0: training.steps"),
    ):
        done = results(together(commands, recipe, run, cache, first=first, more=more))
        assert says in done[rank].complaint()
        assert (done[1 - rank].code, done[1 - rank].err) == (2, "")
        assert not run.exists()


def test_a_killed_process_ends_the_others_with_one_line(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    started = together(commands, recipe, tmp_path / "run", recipe.parent / "cache", count=3)
    wait_until(lambda: step_reached(tmp_path / "run") >= 5)
    started[2].signal(signal.SIGKILL)
    done = results(started)
    assert [one.code for one in done] == [2, 2, -signal.SIGKILL]
    lines = [line for one in done for line in one.err.splitlines() if line.startswith("qkv: ")]
    assert len(lines) == 1 and "another process of this training has ended" in lines[0]
    assert not any("Traceback" in one.err for one in done)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_stops_all_and_everything_is_saved(
    commands: Commands, recipe: Path, one_process: Path, tmp_path: Path, rank: int
) -> None:
    run, cache = tmp_path / "run", recipe.parent / "cache"
    started = together(commands, recipe, run, cache)
    wait_until(lambda: step_reached(run) >= 5)
    started[rank].signal(signal.SIGTERM)
    done = results(started)
    assert [one.code for one in done] == [143, 143], done[0].err
    assert not (run / "result.json").exists()
    assert int(max((run / "checkpoints").glob("step-*")).name.removeprefix("step-")) == step_reached(run)
    assert [one.code for one in results(together(commands, recipe, run, cache))] == [0, 0]
    assert_same(one_process, run)


def test_processes_with_different_clocks_agree_on_a_plan(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """The second process believes that all takes five times as long."""
    slow = "import os, time; real = time.perf_counter; time.perf_counter = lambda: real() * (1 + 4 * int(os.environ['RANK']))"
    planned = write_recipe(tmp_path, **{**SAME, "training": {**SAME["training"], "steps": None, "minutes": 0.05}})
    done = results(together(commands, planned, tmp_path / "run", recipe.parent / "cache", first=slow))
    assert [one.code for one in done] == [0, 0], done[0].err
    assert step_reached(tmp_path / "run") > 3


def test_qkv_train_gpus_starts_the_processes(commands: Commands, recipe: Path, one_process: Path, tmp_path: Path) -> None:
    """The real torchrun, with pretended GPUs: the processes train on the CPU."""
    gpus = "import torch; torch.cuda.device_count = lambda: 2"
    run, cache = tmp_path / "run", {"QKV_CACHE": str(recipe.parent / "cache")}
    started = commands.start("train", recipe, "--out", run, "--gpus", "all", first=gpus, **cache)
    wait_until(lambda: step_reached(run) >= 5)
    started.signal(signal.SIGTERM)
    assert started.result().code != 0
    assert int(max((run / "checkpoints").glob("step-*")).name.removeprefix("step-")) == step_reached(run) < 30
    done = commands.run("train", recipe, "--out", run, "--gpus", "all", first=gpus, **cache)
    assert done.code == 0, done.err
    assert_same(one_process, run)


def test_more_gpus_than_there_are(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    gpus = "import torch; torch.cuda.device_count = lambda: 2"
    for wanted, says in (("3", "torch sees 2 GPUs here"), ("0", "torch sees 2 GPUs here"), ("both", "give a number, or all")):
        done = commands.run("train", recipe, "--out", tmp_path / "run", "--gpus", wanted, first=gpus)
        assert says in done.complaint()
    assert not (tmp_path / "run").exists()


# Starts one of two agents of torchrun, whose worker is forked from it: nothing is imported again.
AGENT = """
import os, signal
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from qkv.cli import main
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
def work():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork has the agent's handler
    main()
config = LaunchConfig(
    min_nodes=2, max_nodes=2, nproc_per_node=1, run_id="test", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:{port}",
    rdzv_configs={{"is_host": {host}, "keep_alive_interval": 1, "keep_alive_max_attempt": 3, "join_timeout": 60}},
    max_restarts=9, monitor_interval=0.1, start_method="fork",
)
try:
    elastic_launch(config, work)()
except ChildFailedError:
    os._exit(1)
os._exit(0)
"""


def test_two_agents_survive_the_death_of_a_worker_and_of_an_agent(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Both are killed with SIGKILL; the run goes on from its last checkpoint and ends as one that was never interrupted."""
    run, cache, port = tmp_path / "run", recipe.parent / "cache", free_port()
    assert [one.code for one in results(together(commands, recipe, tmp_path / "whole", cache))] == [0, 0]

    def agent(number: int) -> RunningCommand:
        first = AGENT.format(port=port, host=number == 0)
        return commands.start("train", recipe, "--out", run, first=first, QKV_CACHE=str(cache))

    def saved() -> int:
        return max((int(folder.name.removeprefix("step-")) for folder in run.glob("checkpoints/step-*")), default=0)

    agents = [agent(0), agent(1)]
    wait_until(lambda: saved() >= 10)
    (worker,) = Path(f"/proc/{agents[1].pid}/task/{agents[1].pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    wait_until(lambda: saved() >= 20)
    agents[1].signal(signal.SIGKILL)
    agents[1].result()
    agents[1] = agent(1)
    done = results(agents)
    assert [one.code for one in done] == [0, 0], done[0].err + done[1].err
    assert weights(run) == weights(tmp_path / "whole")
    assert metrics_without_times(run) == metrics_without_times(tmp_path / "whole")
