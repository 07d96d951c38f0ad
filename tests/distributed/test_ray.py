"""A pool on a Ray cluster of two nodes, of which one is killed."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import qkv
from qkv.base.errors import ConfigError, QkvError
from qkv.base.pool import run_tasks
from qkv.distributed import ray_workers
from qkv.distributed.ray_workers import RayWorkers, cluster_size, connect

HERE = Path(__file__).parent
STORE = 80_000_000  # bytes of a node's object store, the least that Ray takes

# Ray leaves files and sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning",
                                        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:set up")  # fmt: skip


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one CPU each."""
    pytest.importorskip("ray", reason="ray is not installed; pip install 'qkv[cluster]'")
    from ray.cluster_utils import Cluster

    # Actors find qkv and the work of the tests.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(Path(qkv.__file__).parents[1])]))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE})
    made.second = made.add_node(num_cpus=1, object_store_memory=STORE)
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    connect().shutdown()
    made.shutdown()


def test_actors_and_a_node_may_die(cluster: Any, tmp_path: Path) -> None:
    assert cluster_size(gpus=False) == 2
    workers = RayWorkers("pool_work:counting", {"folder": str(tmp_path)})
    tasks = [{"number": number, "deaths": int(number == 1), "seconds": 0.2} for number in range(12)]
    found = []
    for one in run_tasks(workers, 2, tasks):
        found.append(one)
        if len(found) == 3:
            cluster.remove_node(cluster.second, allow_graceful=False)
    assert sorted(one.task for one in found) == list(range(12))
    assert all(one.result["square"] == one.task**2 for one in found)
    assert (tmp_path / "1").read_text().startswith("xx")  # its first actor died, and it may have run on the node that was killed
    assert len(cluster.list_all_nodes()) == 1


class LostCluster:
    """Looks like ray: the first actor is set up and dies at its task, and there is no room for others."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self) -> None:
        self.actors = self.asked = 0

    def remote(self, kind: type) -> Any:
        def start(_: str) -> Any:
            self.actors += 1
            begin, do = ("set up", "dead") if self.actors == 1 else ("waits", "waits")
            return SimpleNamespace(begin=SimpleNamespace(remote=lambda: begin), do=SimpleNamespace(remote=lambda _: do))

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def wait(self, awaited: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self.asked += 1
        assert self.asked < 1000, "waits for ever"
        time.sleep(0.001)
        return [one for one in awaited if one != "waits"], []

    def get(self, answered: str) -> str:
        if answered == "dead":
            raise RuntimeError("The actor died")
        return json.dumps({"warnings": [], "result": None})

    def kill(self, actor: Any) -> None:
        pass


def test_a_cluster_that_loses_all_workers_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_workers, "connect", LostCluster)
    monkeypatch.setattr(ray_workers, "SAY_AFTER", 0.01)
    monkeypatch.setattr(ray_workers, "GIVE_UP_AFTER", 0.05)
    with pytest.raises(QkvError, match=r"all workers of the Ray cluster died, and it had no free CPU .* what is done is kept"):
        list(run_tasks(RayWorkers("work", {}), 1, [{"number": 1}]))
    assert capsys.readouterr().err == "qkv: waiting for a free CPU of the Ray cluster\n"


def test_an_address_without_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray cluster at 127\.0\.0\.1:1: .*; check RAY_ADDRESS"):
        connect()


def test_without_ray_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--on ray needs ray: pip install 'qkv\[cluster\]'"):
        connect()
