"""Damaged checkpoints and caches are refused or made again, with a message, and the result is the same."""

import shutil
from pathlib import Path

import pytest

from workbench import Commands, RunningCommand, UninterruptedRun, step_reached, wait_until, weights


def flip(path: Path, byte: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def train(commands: Commands, whole: UninterruptedRun, run: Path, cache: Path | None = None, **options: str) -> RunningCommand:
    return commands.start("train", whole.recipe, "--out", run, QKV_CACHE=str(cache or whole.cache), **options)


@pytest.fixture(scope="module")
def halfway(commands: Commands, whole: UninterruptedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was killed after its third checkpoint."""
    run = tmp_path_factory.mktemp("halfway") / "run"
    started = train(commands, whole, run)
    wait_until(lambda: step_reached(run) >= 34)
    started.signal()
    started.result()
    return run


@pytest.fixture
def run(halfway: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(halfway, tmp_path / "run"))


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_truncated_checkpoint_is_refused_and_the_one_before_is_used(
    commands: Commands, whole: UninterruptedRun, run: Path, name: str
) -> None:
    damaged = newest(run)
    cut(damaged / name)
    done = train(commands, whole, run).result()
    assert done.code == 0, done.err
    warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and damaged.name in warnings[0] and "resuming from step-000000" in warnings[0]
    assert whole.equals(run)


def test_a_single_bit_is_enough(commands: Commands, whole: UninterruptedRun, run: Path) -> None:
    damaged = newest(run)
    flip(damaged / "model.safetensors", -100)
    done = train(commands, whole, run).result()
    assert f"{damaged / 'model.safetensors'}: damaged or truncated: not used; resuming from" in done.err
    assert whole.equals(run)


def test_all_damaged_is_one_clear_line_and_nothing_is_touched(commands: Commands, whole: UninterruptedRun, run: Path) -> None:
    for folder in (run / "checkpoints").glob("step-*"):
        cut(folder / "model.safetensors")
    before = {path: path.read_bytes() for path in run.rglob("*.*") if path.is_file() and "tensorboard" not in path.parts}
    complaint = train(commands, whole, run).result().complaint()
    assert "no checkpoint of" in complaint and "delete its checkpoints/ to start anew" in complaint
    assert {path: path.read_bytes() for path in before} == before
    shutil.rmtree(run / "checkpoints")
    assert train(commands, whole, run).result().code == 0  # the advice is right
    assert whole.equals(run)


def test_a_damaged_older_checkpoint_is_not_averaged(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole.run, tmp_path / "run"))
    (run / "result.json").unlink()
    older = run / "checkpoints" / "step-00000050"
    flip(older / "model.safetensors", -100)
    complaint = train(commands, whole, run).result().complaint()
    assert complaint == f"qkv: {older / 'model.safetensors'}: damaged or truncated; delete {older} to continue without it"
    assert weights(run) == whole.weights  # what was there stays


@pytest.mark.parametrize("pattern", ["shards/*/source.ids", "shards/*/target.ends", "shards/*/meta.json"])
@pytest.mark.parametrize("harm", [cut, lambda path: flip(path, 0), Path.unlink], ids=["cut", "flipped", "missing"])
def test_a_damaged_cache_of_tokens_is_made_again(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path, pattern: str, harm: object
) -> None:
    cache = Path(shutil.copytree(whole.cache, tmp_path / "cache"))
    (path,) = cache.glob(pattern)
    harm(path)  # type: ignore[operator]
    started = train(commands, whole, tmp_path / "run", cache)
    wait_until(lambda: step_reached(tmp_path / "run") >= 5)
    started.signal()
    started.result()
    assert path.read_bytes() == next(whole.cache.glob(pattern)).read_bytes()
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert metrics.partition('"learning_rate"')[0] == (whole.run / "metrics.jsonl").read_text().partition('"learning_rate"')[0]


@pytest.mark.parametrize("name", ["pieces/*/pairs.tsv", "checked/*/index.json"])
@pytest.mark.parametrize("harm", [cut, lambda path: flip(path, 0), Path.unlink], ids=["cut", "flipped", "missing"])
def test_a_damaged_cache_of_checked_text_is_made_again(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path, name: str, harm: object
) -> None:
    cache = Path(shutil.copytree(whole.cache, tmp_path / "cache"))
    shutil.rmtree(cache / "tokens")  # so that the text is needed
    files = list(cache.glob(name))
    assert len(files) == 3  # train, dev, test
    for path in files:
        harm(path)  # type: ignore[operator]
    started = train(commands, whole, tmp_path / "run", cache)
    wait_until(lambda: step_reached(tmp_path / "run") >= 5 or not Path(f"/proc/{started.pid}").exists())
    started.signal()
    assert "qkv: " not in started.result().err
    for path in files:
        assert path.read_bytes() == (whole.cache / path.relative_to(cache)).read_bytes()


def test_a_damaged_note_of_a_digest_does_no_harm(commands: Commands, whole: UninterruptedRun, tmp_path: Path) -> None:
    cache = Path(shutil.copytree(whole.cache, tmp_path / "cache"))
    for path in (cache / "digests").iterdir():
        path.write_bytes(b"\xff\xfe\xfd")
    assert train(commands, whole, tmp_path / "run", cache).result().code == 0
    assert whole.equals(tmp_path / "run")


def test_two_that_start_together_with_an_empty_cache_both_end_well(
    commands: Commands, whole: UninterruptedRun, tmp_path: Path
) -> None:
    both = [train(commands, whole, tmp_path / name, tmp_path / "cache") for name in ("one", "two")]
    assert [started.result().code for started in both] == [0, 0]
    assert whole.equals(tmp_path / "one") and whole.equals(tmp_path / "two")
