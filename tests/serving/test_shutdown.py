"""Stopping: whoever is connected may ask once more, and no signal is missed."""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from service_runs import Running

import qkv.serving.server
from qkv.serving.app import create_app
from qkv.serving.registry import ModelRegistry
from qkv.serving.server import ServiceServer, bind, serve
from qkv.serving.settings import ServiceSettings
from workbench import wait_until


def test_who_is_connected_may_ask_once_more(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qkv.serving.server, "LINGER", 600.0)
    with Running(models) as running:
        assert running.client.get("/readyz").status_code == 200
        running.server.should_exit = True
        wait_until(lambda: running.service.stopping)
        answer = running.post("/translate", q="sun")
        assert answer.status_code == 200 and answer.headers["connection"] == "close"
        running.thread.join(30)
        assert not running.thread.is_alive(), "nobody is connected any more, and still it waits"


def test_a_signal_before_the_server_listens_to_them(models: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, late = asyncio.run, threading.Event()

    def signalled(main: Coroutine[Any, Any, None]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        usual(main)

    def stop() -> None:
        late.set()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(asyncio, "run", signalled)
    ending = threading.Timer(30, stop)
    ending.start()
    with bind("127.0.0.1", 0) as listening:
        listening.listen()
        serve(ServiceServer(create_app(models, ServiceSettings(logs="none"))), listening)
    ending.cancel()
    assert not late.is_set(), "the signal was missed"
