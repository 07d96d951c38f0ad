"""Several workers in processes of their own: killed, moved to other models and keys, and stopped under load."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
sys.path.insert(0, str(Path(__file__).parent))

from service_runs import texts_of, write_translator
from test_serving import Clients, serve

from qkv.inference.load import load_translator
from qkv.serving.authentication import digest
from qkv.serving.server import bind
from workbench import Commands, wait_until

WORKERS = 2
ADMIN, ANNA = {"authorization": "Bearer root"}, {"authorization": "Bearer anna"}
CONFIG = """
models: {la: runs/first}
model_root: runs
admin_keys: admins
log_format: json
limits: {time_limit: 30}
"""


class Service:
    """A service of two workers whose config is a file, and clients that know the answers of two models."""

    def __init__(self, commands: Commands, folder: Path):
        self.folder = folder
        self.write(CONFIG)
        (folder / "admins").write_text(f"root {digest('root')}\n")
        self.command, self.port = serve(commands, "--config", folder / "serve.yaml", "--workers", WORKERS, "--port", 0)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def write(self, config: str) -> None:
        (self.folder / "serve.yaml").write_text(config)

    def log(self) -> str:
        return (self.command.folder / "err").read_text()

    def reload(self, says: str) -> None:
        """Send SIGHUP, and wait until the log says what came of it."""
        before = self.log().count(says)
        self.command.signal(signal.SIGHUP)
        wait_until(lambda: self.log().count(says) > before)

    def workers(self) -> set[int]:
        """The processes that have answered requests, by the log."""
        return {int(number) for number in re.findall(r'"process": (\d+), .*"status": 200', self.log())}

    def spread(self, clients: list[httpx.Client]) -> list[int]:
        """Send a request on each connection; return how many of them each worker has, the fewest first."""
        name = f"spread-{uuid4()}"
        for client in clients:
            client.get("/healthz", headers={"x-request-id": name})
        wait_until(lambda: self.log().count(name) == len(clients))
        found = [json.loads(line)["process"] for line in self.log().splitlines() if name in line]
        return sorted(Counter(found).values())

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)", self.client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def translates(self, text: str) -> str:
        return httpx.post(f"{self.client.base_url}/translate", json={"q": text}).json()["translatedText"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workers")
    write_translator(folder / "runs" / "first")
    write_translator(folder / "runs" / "second", width=32)
    shutil.copytree(folder / "runs" / "first", folder / "runs" / "broken")
    os.truncate(folder / "runs" / "broken" / "model.safetensors", 3000)
    (folder / "runs" / "link").symlink_to(folder)
    return folder


@pytest.fixture
def service(commands: Commands, folder: Path) -> Iterator[Service]:
    service = Service(commands, folder)
    yield service
    service.client.close()
    service.command.signal(signal.SIGTERM)
    assert service.command.result().code == 0, service.log()


def answers(folder: Path, texts: list[str]) -> dict[str, str]:
    return dict(zip(texts, load_translator(folder, "cpu").translate(texts), strict=True))


def test_a_killed_worker_is_replaced_and_counts_remain(service: Service, folder: Path) -> None:
    right = answers(folder / "runs" / "first", list(texts_of(64)))
    clients = Clients(service.port, right, 6)
    wait_until(lambda: len(service.workers()) == WORKERS and clients.seen["right"] >= 40)
    counted, victim = service.metric('qkv_prompt_tokens_total{model="la"}'), min(service.workers())
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "a new worker" in service.log())
    wait_until(lambda: service.client.get("/readyz").status_code == 200)
    before = clients.seen["right"]
    wait_until(lambda: clients.seen["right"] >= before + 20)
    assert service.metric('qkv_prompt_tokens_total{model="la"}') >= counted, "a counter went back"
    assert service.metric("qkv_workers") == WORKERS and service.metric("qkv_workers_replaced_total") == 1
    service.command.signal(signal.SIGTERM)
    seen = clients.join()
    assert set(seen) <= {"right", "lost: ReadError", "lost: RemoteProtocolError"}, seen
    assert sum(seen.values()) - seen["right"] <= 6, "only requests inside the killed worker are lost"


def test_workers_end_without_an_error_when_the_supervisor_is_killed(commands: Commands, folder: Path) -> None:
    service = Service(commands, folder)
    opened = [handle.readlink() for handle in Path(f"/proc/{service.command.pid}/fd").iterdir()]
    folders = [path for path in opened if path.name.startswith("qkv-serve-")]
    assert len(folders) == 2 and all(path.is_dir() for path in folders)
    clients = [httpx.Client(base_url=service.client.base_url, timeout=30) for _ in range(8)]
    wait_until(lambda: len(service.spread(clients)) == WORKERS)
    workers = service.workers()
    for client in (service.client, *clients):
        client.close()
    service.command.signal(signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert not any(path.exists() for path in folders) and "Error" not in service.log()
    service.command.result()


def test_connections_are_spread_over_the_workers(service: Service) -> None:
    clients = [httpx.Client(base_url=service.client.base_url, timeout=30) for _ in range(8)]
    wait_until(lambda: service.spread(clients) in ([3, 5], [4, 4]))
    os.kill(max(service.workers()), signal.SIGKILL)
    for client in clients:
        with contextlib.suppress(httpx.HTTPError):
            client.get("/healthz")
    wait_until(lambda: "a new worker" in service.log())
    wait_until(lambda: service.spread(clients) in ([3, 5], [4, 4]))
    for client in clients:
        client.close()


def test_a_model_is_replaced_under_load(service: Service, folder: Path) -> None:
    texts = list(texts_of(64))
    first, second = (answers(folder / "runs" / name, texts) for name in ("first", "second"))
    different = [text for text in texts if first[text] != second[text]]
    text = different[0]
    clients = Clients(service.port, {each: first[each] for each in different}, 4)
    wait_until(lambda: clients.seen["right"] >= 20)

    def add(**body: Any) -> httpx.Response:
        return service.client.post("/admin/models", json=body, headers=ADMIN)

    for name, reason in {"broken": "safetensors", "link": "below the root"}.items():
        refused = add(name="la", folder=name)
        assert (refused.status_code, refused.json()["code"]) == (409, "not_changed") and reason in refused.json()["error"]
        assert reason in service.log()
    assert set(clients.seen) == {"right"}, clients.seen
    changed = add(name="la", folder="second")
    assert changed.status_code == 200 and changed.json()["models"] == {"la": str(folder / "runs" / "second")}
    assert {service.translates(text) for _ in range(12)} == {second[text]}, "some worker has the old model"
    assert add(name="more", folder="first").status_code == 200
    assert [one["id"] for one in service.client.get("/models").json()] == ["la", "more"]
    assert service.client.delete("/admin/models/more", headers=ADMIN).status_code == 200
    last = service.client.delete("/admin/models/la", headers=ADMIN)
    assert last.status_code == 409 and "last model" in last.json()["error"]
    service.command.signal(signal.SIGTERM)
    seen = clients.join()
    new = {f'200: {{"translatedText":"{second[each]}"}}' for each in different}
    assert set(seen) <= {"right", *new} and len(seen) > 1, seen


def test_config_and_keys_are_read_again(service: Service, folder: Path) -> None:
    assert service.client.get("/readyz").status_code == 200 and service.client.get("/models").status_code == 200
    (folder / "keys").write_text(f"anna {digest('anna')} 2\n")
    service.write(CONFIG + "keys: keys\n")
    service.reload("have changed")
    assert service.client.get("/models").status_code == 401
    statuses = []
    for _ in range(12):  # new connections, which either worker may accept
        statuses.append(httpx.get(f"{service.client.base_url}/models", headers=ANNA).status_code)
    assert statuses.count(200) == 2 and statuses.count(429) == 10, "the rate must hold over all workers together"
    service.write(CONFIG.replace("json", "text"))
    service.reload("start the service anew")
    service.write(CONFIG + "keyz: keys\n")
    service.reload("did you mean 'keys'")
    service.write(CONFIG.replace("first", "broken"))
    service.reload("safetensors")
    assert service.client.get("/models").status_code == 401, "a config that cannot be used changes nothing"
    assert service.client.get("/admin/models", headers=ANNA).status_code == 401
    assert service.client.post("/admin/reload", headers=ADMIN).status_code == 409
    shutil.rmtree(folder / "runs" / "copy", ignore_errors=True)
    shutil.copytree(folder / "runs" / "second", folder / "runs" / "copy")
    service.write(CONFIG.replace("first", "copy"))
    assert service.client.post("/admin/reload", headers=ADMIN).json()["models"]["la"].endswith("copy")
    before = service.translates("old bird sings")
    shutil.copy(folder / "runs" / "first" / "recipe.yaml", folder / "runs" / "copy")
    for name in ("model.safetensors", "config.json"):
        shutil.copy(folder / "runs" / "first" / name, folder / "runs" / "copy")
    service.reload("have changed")
    after = answers(folder / "runs" / "first", ["old bird sings"])["old bird sings"]
    assert service.translates("old bird sings") == after != before, "new files in the same folder are another model"


def test_a_full_disk_for_the_log_stops_nothing(commands: Commands, folder: Path) -> None:
    with bind("127.0.0.1", 0) as free:  # the log does not say which port it is
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    first = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"
    run = folder / "runs" / "first"
    command = commands.start("serve", run, "--port", url.rpartition(":")[2], "--workers", WORKERS, "--device", "cpu", first=first)

    def ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(ready)
    for text, right in answers(run, ["red bird", "old tree"]).items():
        assert httpx.post(f"{url}/translate", json={"q": text}).json()["translatedText"] == right
    command.signal(signal.SIGTERM)
    assert command.result().code == 0
