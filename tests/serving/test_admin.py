"""Requests to /admin: each is answered, whatever the supervisor meets."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from service_runs import Running
from supervised import supervised

import qkv.serving.supervisor_link
from qkv.serving.authentication import digest
from qkv.serving.errors import RequestError
from qkv.serving.registry import ModelRegistry
from qkv.serving.service_config import ServiceConfig
from qkv.serving.settings import ApiKey
from qkv.serving.supervisor_link import SupervisorLink

ADMIN = {"authorization": "Bearer root"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    (root / "model" / "v2").mkdir(parents=True)
    (root / "loop").symlink_to(root / "loop")
    (root / "out").symlink_to(root.parent)
    return root


@pytest.fixture(scope="module")
def administered(models: ModelRegistry, root: Path) -> Iterator[Running]:
    def fail() -> ServiceConfig:
        raise RuntimeError("a fault")

    key = ApiKey(name="root", digest=digest("root"))
    config = ServiceConfig(models={"la": "relative"}, model_root=str(root))
    with supervised(config, fail) as link, Running(models, link, admin_keys=(key,)) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "folder", "status"),
    [("more", "model", 200), ("more", "model/v2/", 200)]
    + [("more", folder, 400) for folder in ("\0", "a\0", "", ".", "..", "../x", "model/..", "/etc", "a//b", "a" * 256, "a\nb")]
    + [("more", folder, 409) for folder in ("loop", "loop/x", "out", "nowhere", "ä")]
    + [(name, "model", 400) for name in ("", "a/b", "..", "a b", "a\n", "a" * 101)],
)
def test_a_folder_or_name_that_cannot_be(administered: Running, name: str, folder: str, status: int) -> None:
    answer = administered.client.post("/admin/models", json={"name": name, "folder": folder}, headers=ADMIN)
    assert answer.status_code == status, answer.text
    assert status != 400 or answer.json()["error"].startswith(("folder: ", "name: "))


def test_folders_are_absolute(administered: Running) -> None:
    assert Path(administered.client.get("/admin/models", headers=ADMIN).json()["models"]["la"]).is_absolute()


def test_the_last_model_becomes_no_adapter(administered: Running) -> None:
    administered.client.delete("/admin/models/more", headers=ADMIN)
    body = {"name": "la", "folder": "model", "adapter": True}
    answer = administered.client.post("/admin/models", json=body, headers=ADMIN)
    assert answer.status_code == 409 and "last model" in answer.json()["error"]


def test_a_fault_of_the_supervisor_is_answered_and_logged(administered: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "qkv.serving"):
        answer = administered.client.post("/admin/reload", headers=ADMIN)
    assert answer.status_code == 500 and "RuntimeError: a fault" in caplog.text
    assert administered.client.get("/admin/models", headers=ADMIN).status_code == 200


def test_no_answer_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()

    async def ask_in_vain() -> None:
        link = SupervisorLink(theirs, 1)
        running = asyncio.create_task(link.run([], lambda: None))
        asked = asyncio.create_task(link.ask(what="list"))
        await asyncio.sleep(0.01)
        with monkeypatch.context() as patched, pytest.raises(RequestError, match="no answer within"):
            patched.setattr(qkv.serving.supervisor_link, "ANSWER_SECONDS", 0.01)
            await link.ask(what="list")
        ours.close()
        await running
        for each in (asked, link.ask(what="list")):  # one that waits, and one that comes too late
            with pytest.raises(RequestError, match="is stopping"):
                await each

    asyncio.run(ask_in_vain())


def test_connections_beyond_a_workers_share_are_closed_after_a_response(administered: Running) -> None:
    with httpx.Client(base_url=administered.url) as client:
        administered.service.surplus = 1
        headers = [client.get("/healthz").headers.get("connection") for _ in range(3)]
    assert headers == ["close", None, None]
