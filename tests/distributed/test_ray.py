"""A pool on a Ray cluster of two nodes, of which one is killed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.base.errors import ConfigError
from qkv.base.pool import run_tasks
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


def test_an_address_without_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray cluster at 127\.0\.0\.1:1: .*; check RAY_ADDRESS"):
        connect()


def test_without_ray_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--on ray needs ray: pip install 'qkv\[cluster\]'"):
        connect()
