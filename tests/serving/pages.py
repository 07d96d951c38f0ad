"""Pages of the service in a browser: helpers of their tests."""

from collections.abc import Callable
from typing import Any

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}
VIEWS = {
    "translate": "en-la",
    "fill": "bert",
    "write": "gpt",
    "predict": "tags",
    "words": "words",
    "attention": "gpt",
}  # a model for each view
HOSTILE = '<img src=x onerror="window.ran=1">'
CHOICES = ("tokens", "temperature")  # fields that are not typed into
SHOWN = 20_000  # ms that a slow machine gets

Open = Callable[..., Any]


def show(page: Any, view: str, model: str | None = None) -> None:
    """Go to a view by its address, and wait until it is there."""
    page.evaluate("address => (location.hash = address)", f"#{model or VIEWS[view]}/{view}")
    page.locator(f"#{view}:not(.busy)").wait_for()


def ask(page: Any, view: str, text: str, **fields: str) -> None:
    """Fill in a view's form and send it by the keyboard, whether it follows what is typed or not."""
    for name, value in fields.items():
        field = page.locator(f"#{view} form [name={name}]")
        (field.select_option if name in CHOICES else field.fill)(value)
    page.locator(f"#{view} form [name=text]").fill(text)
    page.locator(f"#{view} form [name=text]").press("Control+Enter")


def message(page: Any, view: str) -> Any:
    return page.locator(f"#{view} .message")


def answered(page: Any, path: str, body: Any, status: int = 200, **headers: str) -> None:
    """Let the browser get this answer instead of the service's."""
    page.route(f"**/{path}", lambda route: route.fulfill(status=status, json=body, headers=headers))


NAMELESS = """() => [...document.querySelectorAll("main button, main input, main textarea, select, header button")]
  .filter((one) => one.checkVisibility() && !one.labels?.length && !one.ariaLabel && !one.textContent.trim())
  .map((one) => one.outerHTML)"""
FAINT = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const even = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (color) => {
    const [red, green, blue] = numbers(color).map((value) => even(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (one) => {
    const color = getComputedStyle(one).backgroundColor;
    return numbers(color)[3] === 0 ? ground(one.parentElement) : color;
  };
  const contrast = (one) => {
    const [dark, bright] = [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  return [...document.querySelectorAll("body *:not(.qkv-viewer *):not(svg *)")]
    .filter((one) => one.checkVisibility() && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((one) => contrast(one) < 4.5).map((one) => one.outerHTML.slice(0, 100));
}"""  # text with less contrast than WCAG 2 asks for
