"""The page of the API in a real browser: requests are tried, with and without keys."""

import json
from pathlib import Path
from typing import Any

import pytest
from pages import DESKTOP, FAINT, NAMELESS, PHONE, Open
from service_runs import Running

from axe import violations
from qkv.serving.admin_api import admin_router
from qkv.serving.authentication import digest
from qkv.serving.registry import ModelRegistry
from qkv.serving.settings import ApiKey
from qkv.serving.supervisor_link import SupervisorLink

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, which drives the browser")
expect = playwright.expect

BELOW = """() => [...document.querySelectorAll(".index a, .endpoint h2")]
  .filter((one) => one.querySelector("b").getBoundingClientRect().right > one.lastElementChild.getBoundingClientRect().left)
  .map((one) => one.textContent)"""  # paths that are not beside their method


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_the_api_on_a_phone(open_page: Open, running: Running, theme: str, locale: str) -> None:
    page = open_page(viewport=PHONE, theme=theme, locale=locale)
    page.goto(f"{running.url}/docs")
    assert page.locator("section").count() > 10
    page.locator("summary").first.click()
    assert page.evaluate(NAMELESS) == [] and page.evaluate(FAINT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(BELOW) == []
    assert violations(page) == []
    page.set_viewport_size(DESKTOP)
    assert violations(page) == [] and page.evaluate(BELOW) == []


def test_requests_are_tried_on_the_page_of_the_api(open_page: Open, running: Running, tmp_path: Path) -> None:
    page = open_page()
    page.goto(f"{running.url}/docs")
    said = running.said("/translate", q="How are you?", source="en", target="la", alternatives=2)
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .status", has_text="200").wait_for()
    assert json.loads(page.locator("#post-translate pre").inner_text()) == said
    page.locator("#post-translate textarea").fill('{"q": "sun", "target": "xx"}')
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .status.failed", has_text="400").wait_for()
    page.locator("#post-translate textarea").fill("no JSON")
    page.locator("#post-translate button[type=submit]").click()
    page.locator("#post-translate .message.error", has_text="not JSON").wait_for()
    page.locator("#post-v1-completions button[type=submit]").click()
    page.locator("#post-v1-completions pre", has_text="[DONE]").wait_for()
    (tmp_path / "a.txt").write_text("red bird")
    for endpoint, problem in {
        "post-translate_file": "Choose a file first.",
        "get-download_file-name": "Fill in name first.",
    }.items():
        page.locator(f"#{endpoint} button[type=submit]").click()
        expect(page.locator(f"#{endpoint} .message.error")).to_have_text(problem)
    page.locator("#post-translate_file input[type=file]").set_input_files(tmp_path / "a.txt")
    page.locator("#post-translate_file button[type=submit]").click()
    with page.expect_download() as fetched:
        page.locator("#post-translate_file .answer a").click()
    assert fetched.value.suggested_filename == "a_la.txt"
    page.locator("#get-download_file-name button[type=submit]").click()
    expect(page.locator("#get-download_file-name pre")).to_have_text(f"{len(said_of(running, 'red bird'))} bytes")


def said_of(running: Running, text: str) -> bytes:
    return running.said("/translate", q=text)["translatedText"].encode()


class Administered(SupervisorLink):
    """Stands for the supervisor of a service."""

    def __init__(self) -> None:
        pass

    async def ask(self, **question: Any) -> dict[str, Any]:
        served = {"models": {"gpt": "runs/gpt"}, "adapters": {}}
        return {"served": served} if question["what"] == "list" else {"failed": f"there is no {question['name']}"}


def test_administration_is_tried_with_its_own_key(open_page: Open, models: ModelRegistry) -> None:
    keys = {"keys": (ApiKey(name="anna", digest=digest("sesame")),), "admin_keys": (ApiKey(name="root", digest=digest("root")),)}
    served = Running(models, **keys)
    served.app.include_router(admin_router(served.service, Administered()))
    with served as guarded:
        described = guarded.client.get("/openapi.json").json()["paths"]["/admin/models/{name}"]["delete"]
        assert {"403", "409"} <= described["responses"].keys() and described["security"] != []
        page = open_page(url=guarded.url)
        page.goto(f"{guarded.url}/docs")
        page.locator("#get-admin-models button[type=submit]").click()
        page.get_by_role("dialog", name="This request needs an administrator's key").get_by_label("Key", exact=True).wait_for()
        page.keyboard.press("Escape")
        page.locator("#get-admin-models .status.failed", has_text="401").wait_for()
        page.locator("#get-admin-models button[type=submit]").click()
        page.get_by_role("dialog", name="This request needs an administrator's key").get_by_label("Key", exact=True).fill("root")
        page.keyboard.press("Enter")
        page.locator("#get-admin-models .status", has_text="200").wait_for()
        page.locator("#delete-admin-models-name button[type=submit]").click()
        expect(page.locator("#delete-admin-models-name .message")).to_have_text("Fill in name first.")
        page.locator("#delete-admin-models-name input").fill("old one")
        page.locator("#delete-admin-models-name button[type=submit]").click()
        page.locator("#delete-admin-models-name .status.failed", has_text="409").wait_for()
        assert "there is no old one" in page.locator("#delete-admin-models-name pre").inner_text()
        page.locator("#get-models button[type=submit]").click()
        page.get_by_role("dialog", name="This server needs a key").get_by_label("Key", exact=True).fill("sesame")
        page.keyboard.press("Enter")
        page.locator("#get-models .status", has_text="200").wait_for()
        page.goto("about:blank")
