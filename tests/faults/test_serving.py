"""A service in its own process is stopped under load, killed, restarted, and started with wrong options."""

import re
import signal
import socket
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))

from service_runs import texts_of, write_translator

from qkv.inference.load import load_translator
from qkv.serving.authentication import digest
from workbench import Commands, RunningCommand, wait_until


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_translator(tmp_path_factory.mktemp("served") / "en-la")


def serve(commands: Commands, *args: object, first: str = "") -> tuple[RunningCommand, int]:
    """Start a service, and return its process and port."""
    started = commands.start("serve", *args, "--device", "cpu", first=first)
    err = started.folder / "err"
    wait_until(lambda: "listens" in err.read_text() or "qkv: " in err.read_text())
    found = re.search(r"listens on http://127\.0\.0\.1:(\d+)", err.read_text())
    assert found, err.read_text()
    return started, int(found[1])


class Clients:
    """Threads that send requests on persistent connections until the service is gone."""

    def __init__(self, port: int, right: dict[str, str], many: int):
        self.port, self.right, self.seen, self.lock = port, right, Counter[str](), threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(list(right)[number::many],)) for number in range(many)]
        for thread in self.threads:
            thread.start()

    def ask(self, texts: list[str]) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30) as client:
            while True:
                for text in texts:
                    try:
                        answer = client.post("/translate", json={"q": text})
                    except httpx.ConnectError:  # the service has stopped
                        return
                    except httpx.HTTPError as error:
                        self.note(f"lost: {type(error).__name__}")
                        return
                    right = answer.status_code == 200 and answer.json()["translatedText"] == self.right[text]
                    self.note("right" if right else f"{answer.status_code}: {answer.text}")

    def note(self, what: str) -> None:
        with self.lock:
            self.seen[what] += 1

    def join(self) -> Counter[str]:
        for thread in self.threads:
            thread.join()
        return self.seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nothing(commands: Commands, translator: Path, number: int) -> None:
    texts = texts_of(64)
    right = dict(zip(texts, load_translator(translator, "cpu").translate(texts), strict=True))
    started, port = serve(commands, translator, "--port", 0)
    clients = Clients(port, right, 8)
    wait_until(lambda: clients.seen["right"] >= 50)
    started.signal(number)
    seen = clients.join()
    done = started.result()
    assert done.code == 0, done.err
    assert set(seen) == {"right"}, seen
    assert "Traceback" not in done.err and "sun" not in done.err


def test_killed_and_started_again(commands: Commands, translator: Path) -> None:
    started, port = serve(commands, translator, "--port", 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        before = client.post("/translate", json={"q": "red bird"}).json()
        assert client.post("/translate_file", files={"file": ("a.txt", b"red bird")}).status_code == 200
        opened = [file.readlink() for file in Path(f"/proc/{started.pid}/fd").iterdir()]
        folders = [path for path in opened if path.name.startswith("qkv-serve-")]  # of metrics and of translated files
        assert len(folders) == 2 and sum(len(list(folder.glob("*.txt"))) for folder in folders) == 1
        started.signal(signal.SIGKILL)
        assert started.result().code == -signal.SIGKILL
        wait_until(lambda: not any(folder.exists() for folder in folders))  # a worker deletes users' files and the metrics
        again, same = serve(commands, translator, "--port", port)
        assert same == port
        assert httpx.post(f"http://127.0.0.1:{port}/translate", json={"q": "red bird"}).json() == before
    again.signal(signal.SIGTERM)
    assert again.result().code == 0


def test_mistakes_on_the_command_line(commands: Commands, translator: Path, tmp_path: Path) -> None:
    assert "no run to serve" in commands.run("serve").complaint()
    assert "nowhere" in commands.run("serve", tmp_path / "nowhere", "--port", 0).complaint()
    assert "two runs are called 'en-la'" in commands.run("serve", translator, translator, "--port", 0).complaint()
    assert "did you mean 'queue'" in commands.run("serve", translator, "--set", "queu=3", "--port", 0).complaint()
    for origin in ("a.org", "https://a.org/", "null"):
        complaint = commands.run("serve", translator, "--origin", origin, "--port", 0).complaint()
        assert complaint.startswith(f"qkv: --origin {origin}: an origin is scheme://host")
    complaint = commands.run("serve", translator, "--name", "https://a.org", "--port", 0).complaint()
    assert complaint.startswith("qkv: --name https://a.org: a host name is a name or an address alone")
    complaint = commands.run("serve", translator, "--set", "origins=[evil]", "--port", 0).complaint()
    assert "origins.0: an origin is scheme://host" in complaint
    (tmp_path / "keys").write_text("anna notadigest")
    assert "line 1" in commands.run("serve", translator, "--keys", tmp_path / "keys", "--port", 0).complaint()
    (tmp_path / "keys").write_text(f"anna {digest('anna')}")
    keys, root = ("--keys", tmp_path / "keys"), ("--model-root", tmp_path / "nowhere")
    admin_keys = ("--admin-keys", tmp_path / "keys")
    for options, message in {
        ("--set", "foo=1"): "unknown key 'foo'; known are batch_tokens, ",
        ("--trusted-proxy", "foo"): "--trusted-proxy foo: a trusted proxy is an address or a network",
        ("--host", "999.1.1.1"): "give one of this machine's addresses to --host",
        ("--host", "192.0.2.1"): "give one of this machine's addresses to --host",
        root: "--model-root is for /admin, which needs --admin-keys",
        (*root, *admin_keys): "nowhere: no such folder",
        (*keys, *admin_keys): "the key of 'anna' is in the files of --keys and of --admin-keys",
    }.items():
        assert message in commands.run("serve", translator, *options, "--port", 0).complaint()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        complaint = commands.run("serve", translator, "--port", taken.getsockname()[1]).complaint()
    assert "choose another with --port" in complaint


def test_a_service_for_everybody_warns(commands: Commands, translator: Path) -> None:
    started = commands.start("serve", translator, "--host", "0.0.0.0", "--name", "A.org", "--port", 0, "--device", "cpu")
    err = started.folder / "err"
    wait_until(lambda: "listens" in err.read_text())
    warning, *_ = err.read_text().splitlines()
    assert warning.startswith("qkv: --host 0.0.0.0 without keys: everybody who can reach this machine") and "--keys" in warning
    assert "any name" not in warning
    found = re.search(r"listens on http://0\.0\.0\.0:(\d+)", err.read_text())
    assert found
    with httpx.Client(base_url=f"http://127.0.0.1:{found[1]}") as client:
        for host, status in {"a.org": 200, "localhost": 200, "evil.org": 421}.items():
            assert client.get("/healthz", headers={"host": host}).status_code == status
    started.signal(signal.SIGTERM)
    assert started.result().code == 0


def test_keys_from_the_command_line(commands: Commands, translator: Path, tmp_path: Path) -> None:
    made = commands.run("serve", "--new-key", "anna")
    key = made.err.split()[-1]
    assert made.code == 0 and key.startswith("qkv-") and key not in made.out
    (tmp_path / "keys").write_text(made.out)
    started, port = serve(commands, f"latin={translator}", "--keys", tmp_path / "keys", "--port", 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert client.get("/models").status_code == 401
        models = client.get("/models", headers={"authorization": f"Bearer {key}"}).json()
        assert [one["id"] for one in models] == ["latin"]
        assert client.get("/healthz", headers={"host": "evil.org"}).status_code == 421
    started.signal(signal.SIGTERM)
    assert started.result().code == 0
