"""Files for running the service: the config, the dashboard, nginx and systemd. Tools that are missing skip their test."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent / "serving"))

from service_runs import Running, write_vectors

from qkv.serving.admission import LONGEST
from qkv.serving.metrics import Metrics, SupervisorMetrics
from qkv.serving.registry import load_models
from qkv.serving.server import bind
from qkv.serving.service_config import read_config
from qkv.serving.settings import ServiceSettings
from qkv.serving.supervisor import PATIENCE
from workbench import wait_until

DEPLOY = Path(__file__).parents[1] / "deploy"
CONFIG = DEPLOY / "config" / "serve.yaml"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that trusts a proxy on 127.0.0.1, and no other address."""
    run = write_vectors(tmp_path_factory.mktemp("deployed") / "words")
    with Running(load_models([str(run)], "cpu"), rate=3, proxies=("127.0.0.1",)) as running:
        yield running


def test_the_config_can_be_read() -> None:
    config = read_config(CONFIG, {})
    assert config.keys == str(CONFIG.with_name("keys")) and config.models == {"en-de": "/srv/qkv/en-de"}
    config.model_copy(update={"keys": None, "admin_keys": None, "model_root": None}).settings()


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    metrics = [*Metrics().registry.collect(), *(each for own in vars(SupervisorMetrics()).values() for each in own.collect())]
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    named = {metric.name + ending for metric in metrics for ending in endings[metric.type]}
    asked = set(re.findall(r"qkv_\w+", (DEPLOY / "grafana-dashboard.json").read_text()))
    assert len(asked) >= 11 and asked <= named, asked - named
    assert len(json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]) >= 12


def seconds(file: str, key: str) -> int:
    (found,) = re.findall(rf"{key}[ =:]+(\d+)s?\b", (DEPLOY / file).read_text())
    return int(found)


def test_whoever_waits_for_the_service_waits_long_enough() -> None:
    settings = ServiceSettings(**yaml.safe_load(CONFIG.read_text())["limits"])
    longest = LONGEST * settings.time_limit
    assert seconds("nginx.conf", "proxy_read_timeout") > longest
    for file, key in {"compose.yaml": "stop_grace_period", "qkv.service": "TimeoutStopSec"}.items():
        assert seconds(file, key) > longest + PATIENCE, file
    sizes = [int(size) << 20 for size in re.findall(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text())]
    assert sizes[0] > settings.body_bytes and sizes[1] > settings.file_bytes + settings.body_bytes


def test_containers_have_no_rights() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]
        assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert "./config:/etc/qkv:ro" in services["qkv"]["volumes"]
    assert services["qkv"]["build"]["args"]["TORCH_INDEX"].startswith("${TORCH_INDEX:?")  # else torch is the CUDA build
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 10001:10001"
    assert any(line.startswith("HEALTHCHECK") for line in lines) and not any(":latest" in line for line in lines)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "qkv.service").read_text()
    (tmp_path / "qkv.service").write_text(text.replace("/opt/qkv/bin/qkv", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "qkv.service"], capture_output=True, text=True)
    assert done.returncode == 0 and "qkv.service" not in done.stderr, done.stderr


@pytest.fixture
def nginx(running: Running) -> Iterator[str]:
    """nginx in front of the service, by our file, with other ports and folders."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:  # pytest's own belongs to root alone, and nginx changes its user
        Path(folder).chmod(0o755)
        changes = {"qkv:8000": f"127.0.0.1:{running.port}", "8080": f"127.0.0.1:{port}", "/tmp/": f"{folder}/"}
        text = (DEPLOY / "nginx.conf").read_text()
        for old, new in {**changes, "/dev/stdout": f"{folder}/log", "/dev/stderr": f"{folder}/errors"}.items():
            text = text.replace(old, new)
        Path(folder, "nginx.conf").write_text(text)
        command = [program, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/errors", "-g", "daemon off;"]
        process = subprocess.Popen(command)
        try:
            wait_until(lambda: _listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def asks_from(address: str) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(local_address=address))


def test_nginx_in_front(nginx: str, running: Running) -> None:
    ask = {"word": "sun"}
    for address in ("127.0.0.2", "127.0.0.3"):  # told apart behind nginx
        with asks_from(address) as client:
            statuses = [client.post(f"{nginx}/neighbours", json=ask).status_code for _ in range(4)]
            assert statuses == [200, 200, 200, 429], address
            # No other address than nginx's may say for whom it asks, and nginx does not pass on what clients say.
            said = {"x-forwarded-for": "10.9.9.9"}
            assert client.post(f"{nginx}/neighbours", json=ask, headers=said).status_code == 429
            assert client.post(f"{running.url}/neighbours", json=ask, headers=said).status_code == 429
    with asks_from("127.0.0.4") as client:
        answer = client.post(f"{nginx}/neighbours", json=ask, headers={"x-request-id": "mine-1", "origin": nginx})
        assert answer.status_code == 200 and answer.headers["x-request-id"] == "mine-1"
        unfit = client.get(f"{nginx}/healthz", headers={"x-request-id": "a b"})
        assert re.fullmatch("[0-9a-f]{32}", unfit.headers["x-request-id"])
        assert client.get(f"{nginx}/metrics").status_code == client.get(f"{nginx}/admin/models").status_code == 403
        large = client.post(f"{nginx}/neighbours", json={"word": "a" * 1_500_000})
        assert large.status_code == 413 and large.json()["code"] == "body_too_large"
        larger = client.post(f"{nginx}/neighbours", json={"word": "a" * 3_000_000})  # refused by nginx
        assert larger.status_code == 413 and larger.json()["code"] == "body_too_large"
        for size, reason in {
            5_500_000: "the file has more than 5,000,000 bytes; split it",
            9_000_000: "the body is too large",
        }.items():
            file = client.post(f"{nginx}/translate_file", files={"file": ("a.txt", b"a" * size)})
            assert file.status_code == 413 and reason in file.json()["error"]
        running.__exit__(None, None, None)
        away = client.post(f"{nginx}/neighbours", json=ask)
        assert (away.status_code, away.json()["code"], away.headers["retry-after"]) == (503, "away", "5")
