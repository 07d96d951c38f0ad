"""qkv steps RUN TEXT: show how a model writes: the most probable tokens of each step, and the search as a tree."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.cli.options import Decoding, Device, check_out, run_folder

if TYPE_CHECKING:
    from qkv.lens.steps import Node, SearchView


def steps_command(
    run: Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a translator's or a GPT's run.")],
    text: Annotated[str, typer.Argument(help="Text to translate or to continue.")],
    top: Annotated[int, typer.Option(min=1, max=100, help="Most probable tokens of each step.")] = 5,
    max_tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="For a GPT: maximum number of new tokens, 20 by default.")
    ] = None,
    settings: Decoding = None,
    out: Annotated[Path | None, typer.Option(help="File to write: page.html or numbers.json.")] = None,
    device: Device = "auto",
) -> None:
    """Show how a model writes: the most probable tokens of each step, and beam search as a tree."""
    check_out(out, ".html", ".json")
    from qkv.base.config import with_settings
    from qkv.inference.laboratory import steps
    from qkv.inference.load import load

    options: dict[str, Any] = with_settings({}, settings or [])
    loaded = load(run, device)
    if max_tokens is not None:
        if loaded.loads_as != "generator":
            raise ConfigError("--tokens is for a GPT; a translation ends by itself, or by --set max_length=N")
        options["max_new_tokens"] = max_tokens
    view = steps(loaded, text, top, **options)
    if out is None:
        _print(view)
    else:
        view.save(out)
        print(out)


def _print(view: "SearchView") -> None:
    """Print the steps of the output, and a beam's tree."""
    best = view.writing.hypotheses[0]
    print(f"{view.search}, {view.writing.model}: {view.output}")
    print(f"log-probability {best.logprob:.3f}, score {best.score:.3f}, {'ended' if best.finished else 'not ended'}\n")
    values, path = view.json(), [node for node in view.nodes if node.best][1:]
    pieces = view.writing.tokenizer.pieces
    for node in path:
        step = values["steps"][node.step]
        top = next(one["top"] for one in step["hypotheses"] if one["node"] == node.parent)
        likely = ", ".join(f"{token} {value:.1%}" for token, value in top)
        drawn = step["draw"]
        after = "" if drawn is None else f"; drawn with {drawn['probability']:.1%} out of {drawn['choices']}"
        print(f"  {node.step + 1}\t{pieces([node.token])[0]}\t{likely}{after}")
    if view.search == "beam":
        print("\nthe beam as a tree (* the output, | ended, - dropped; score):")
        children: dict[int, list[Node]] = {}
        for node in view.nodes[1:]:
            if node.kept:
                children.setdefault(node.parent or 0, []).append(node)
        _print_tree(view, children)


def _print_tree(view: "SearchView", children: dict[int, list["Node"]]) -> None:
    """Print kept nodes, each below its parent; a node without a branch stays on its parent's line."""
    waiting = [(node, 0) for node in reversed(children.get(0, []))]
    while waiting:
        node, depth = waiting.pop()
        tokens, last = [], node
        while True:
            tokens.append(view.writing.tokenizer.pieces([last.token])[0])
            below = children.get(last.id, [])
            if len(below) != 1 or below[0].best != last.best:
                break
            last = below[0]
        mark = "*" if last.best else "|" if last.status == "ended" else "-" if last.status == "dropped" else " "
        print(f"  {'  ' * depth}{mark} {' '.join(tokens)}  {last.score:.2f}")
        waiting += [(one, depth + 1) for one in reversed(below)]
