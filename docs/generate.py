"""Writes the pages of docs/ that repeat what the source says: recipe.md, commands.md, the index of findings, failures.

`python docs/generate.py` writes them anew, `--check` names those that are stale and fails.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codes import Use, uses
from cyclopts import App
from cyclopts.argument import Argument
from failures_page import STAMP, failures_page
from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

import bascule
from bascule import settings
from bascule.cli import app
from bascule.recipe.load import example
from bascule.recipe.schema import Recipe

DOCS = Path(__file__).resolve().parent
PACKAGE = Path(bascule.__file__).parent


def main(words: Sequence[str] | None = None) -> int:
    """Write or check; the exit status is 1 when something is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")
    options = parser.parse_args(words)
    old = stale(DOCS, PACKAGE)
    for path, text in old.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"{'stale' if options.check else 'wrote'}: {path.relative_to(DOCS.parent)}\n")
    return 1 if options.check and old else 0


def stale(docs: Path, package: Path) -> dict[Path, str]:
    """The pages that are not what the source says now, with what they should be."""
    return {
        path: text
        for path, text in pages(docs, package).items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def pages(docs: Path, package: Path) -> dict[Path, str]:
    """Every generated page; codes are read from the source in `package`."""
    found = uses(package)
    headed = {path: with_places(path, found) for path in finding_pages(docs)}
    return {
        docs / "recipe.md": recipe_page(),
        docs / "commands.md": commands_page(app),
        **headed,
        docs / "findings" / "README.md": findings_page(found, headed),
        docs / "findings" / "failures.md": failures_page(package),
    }


# The recipe


def recipe_page() -> str:
    """All keys with their comment, example, type and default, behind the whole example."""
    parts = [
        "# The recipe\n",
        STAMP.format("src/bascule/recipe/example.yaml") + "\n",
        "A recipe says which model is served, on which machines, and by what. `bascule init` writes this one; only\n"
        "`service`, `model` and `nodes` must be there. A mistake is told as file:line:column before a node is asked.\n",
        f"```yaml\n{example().rstrip()}\n```\n",
    ]
    explained = dict(example_keys(example()))
    for path, (kind, default) in schema_keys().items():
        comment, value = explained.get(path, ("", None))
        lines = [f"## `{path}`\n", f"{comment}\n"] if comment else [f"## `{path}`\n"]
        shown = [f"- type: {kind}", f"- default: {default}"]
        if value is not None:
            shown.insert(0, f"- example: `{value}`")
        parts += [*lines, "\n".join(shown) + "\n"]
    return "\n".join(parts)


def example_keys(text: str) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Each key of the example with the comment above it and its value; the first that stands in the text wins."""
    seen: set[str] = set()
    lines = text.splitlines()
    for path, line, value in _keys(YAML().load(text), ""):
        if path not in seen:
            seen.add(path)
            yield path, (_comment_above(lines, line), value)


def _keys(tree: Any, above: str) -> Iterator[tuple[str, int, str | None]]:
    if isinstance(tree, CommentedSeq):
        for item in tree:
            yield from _keys(item, f"{above}[]")
    if isinstance(tree, CommentedMap):
        for key, value in tree.items():
            path = f"{above}.{key}" if above else str(key)
            yield path, tree.lc.key(key)[0], _shown(value)
            yield from _keys(value, path)


def _shown(value: Any) -> str | None:
    if isinstance(value, CommentedMap):
        return None
    if isinstance(value, CommentedSeq):
        return f"[{', '.join(map(str, value))}]" if value.fa.flow_style() else None
    return str(value)


def _comment_above(lines: Sequence[str], number: int) -> str:
    comment: list[str] = []
    while number > 0 and lines[number - 1].strip().startswith("#"):
        number -= 1
        comment.insert(0, lines[number].strip().lstrip("#").strip())
    return "\n".join(comment)


def schema_keys(recipe: type[BaseModel] = Recipe) -> dict[str, tuple[str, str]]:
    """Each key that a recipe may have (`nodes[].host`), with its type and its default in words."""
    schema = recipe.model_json_schema()
    return dict(_schema_keys(schema, schema["$defs"], ""))


def _schema_keys(
    part: Mapping[str, Any], parts: Mapping[str, Any], above: str
) -> Iterator[tuple[str, tuple[str, str]]]:
    required = part.get("required", [])
    for key, value in part["properties"].items():
        path = f"{above}{key}"
        yield path, (_type(value), "none, it must be there" if key in required else _default(value.get("default")))
        items = value.get("items", {})
        if "$ref" in items:
            yield from _schema_keys(parts[items["$ref"].rpartition("/")[2]], parts, f"{path}[].")


def _type(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return _type(value["anyOf"][0])
    match value["type"]:
        case "string":
            return f"text that matches `{value['pattern']}`" if "pattern" in value else "text"
        case "integer":
            high = f" to {value['maximum']}" if "maximum" in value else " up"
            return f"whole number from {value['minimum']}{high}"
        case "array":
            return (
                "list; an item has the keys below" if "$ref" in value["items"] else f"list of {_type(value['items'])}"
            )
        case "object":
            return f"names, each with {_type(value['additionalProperties'])}"
    raise ValueError(f"no words for {value}")


def _default(value: Any) -> str:
    return "none" if value in (None, "") else "empty" if value in ([], {}) else f"`{value}`"


# The commands


def commands_page(top: App) -> str:
    """Every command with its options, the exit statuses, the variables."""
    statuses = str(top.help_epilogue).removeprefix("Exit status: ").rstrip(".").split(" · ")
    parts = [
        "# The commands\n",
        STAMP.format("src/bascule/cli.py") + "\n",
        f"{top.help}\n",
        "Data goes to standard output, talk and errors to standard error. There is no colour without a terminal or\n"
        "with `NO_COLOR` set. `bascule --version` prints the version, `--help` or `-h` explains any command.\n",
    ]
    parts += [text for name in command_names(top) for text in _command(top, name)]
    parts += ["## Exit status\n", "| status | means |\n|---|---|"]
    parts += [f"| {number} | {means} |" for number, _, means in (text.partition(" ") for text in statuses)]
    parts += ["\n## Variables\n", "| variable | what it says |\n|---|---|"]
    parts += [f"| `{name}` | {says} |" for name, says in variables()]
    return "\n".join(parts) + "\n"


def command_names(top: App) -> list[str]:
    """The names of all commands, in the order of cli.py; those of a group with the group's name before them."""
    names = [name for name in top if not name.startswith("-")]
    below = {name: command_names(top[name]) for name in names if top[name].default_command is None}
    return [f"{name} {one}".rstrip() for name in names for one in below.get(name, [""])]


def command(top: App, name: str) -> App:
    """The command of this name, such as `up` or `lab up`."""
    for word in name.split():
        top = top[word]
    return top


def arguments(top: App, name: str) -> list[Argument]:
    """What a command takes."""
    found = command(top, name).assemble_argument_collection(parse_docstring=True)
    return [argument for argument in found if argument.name != "*"]  # * holds options that are told one by one


def option_names(argument: Argument) -> list[str]:
    """How an argument is written: its options, or the word for a place in the line."""
    return [name for name in argument.names if name.startswith("-")] or [argument.name]


def variables() -> Iterator[tuple[str, str]]:
    """The variables that settings.py names, and those of other conventions that it follows."""
    for line in inspect.getsource(settings).splitlines():
        if found := re.match(r'\w+_VARIABLE = "(\w+)"  # (.+)', line):
            yield found[1], found[2]
    yield "XDG_STATE_HOME", "where the journal, its evidence and the locks are kept: `$XDG_STATE_HOME/bascule`"
    yield "XDG_RUNTIME_DIR", "where the sockets of shared SSH connections are kept; left out: the temporary folder"


def _command(top: App, name: str) -> Iterator[str]:
    function = command(top, name).default_command
    says = inspect.cleandoc(function.__doc__ or "").partition("\nParameters\n")[0].strip()
    taken = arguments(top, name)
    yield f"## bascule {name}\n"
    yield f"    {' '.join(['bascule', name, *(_usage(argument) for argument in taken)])}\n"
    yield f"{says}\n"
    yield "\n".join(_argument(argument) for argument in taken) + "\n"


def _usage(argument: Argument) -> str:
    if not _is_placed(argument):
        return f"[{option_names(argument)[0]}{_value(argument)}]"
    word = argument.name.lstrip("-").upper()
    if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"[-- {word}...]" if word.endswith("FLAGS") else f"[{word}...]"
    return word if argument.required else f"[{word}]"


def _argument(argument: Argument) -> str:
    names = [argument.name.lstrip("-").upper()] if _is_placed(argument) else option_names(argument)
    default = argument.field_info.default
    more = f" Default: `{default}`." if isinstance(default, Path) else ""
    spelled = ", ".join(f"`{name}{_value(argument)}`" for name in names)
    return f"- {spelled}: {' '.join((argument.parameter.help or '').split())}{more}"


def _is_placed(argument: Argument) -> bool:
    return argument.field_info.kind is not inspect.Parameter.KEYWORD_ONLY


def _value(argument: Argument) -> str:
    if _is_placed(argument) or argument.hint is bool:
        return ""
    return " NUMBER" if "int" in str(argument.hint) else " TEXT"


# The findings


def finding_pages(docs: Path) -> list[Path]:
    """The pages of docs/findings, without its index and the catalogue of failures."""
    return sorted(path for path in (docs / "findings").glob("*.md") if path.name not in ("README.md", "failures.md"))


def with_places(path: Path, found: Sequence[Use]) -> str:
    """The page with its third line, `*watch: adjust*`, as the source has it; a page of no code stays as it is."""
    places = dict.fromkeys(str(use) for use in found if use.code == path.stem)
    lines = path.read_text("utf-8").split("\n")
    if places and len(lines) > 3:
        lines[2] = f"*{' · '.join(places)}*"
    return "\n".join(lines)


def findings_page(found: Sequence[Use], texts: Mapping[Path, str]) -> str:
    """The index: what ends or delays a start, what went well, and errors."""
    summaries = {path.stem: summary(text) for path, text in texts.items()}
    groups: dict[str, dict[str, list[Use]]] = {"Findings": {}, "Errors": {}, "What went well": {}}
    for use in found:
        group = "Errors" if use.where == "error" else "What went well" if use.what == "ok" else "Findings"
        groups[group].setdefault(use.code, []).append(use)
    parts = [
        "# Findings and errors\n",
        STAMP.format("the source or a page of this folder") + "\n",
        "A finding is an opinion about a candidate that rests on evidence; its fate says what follows, see\n"
        "[how it decides](../how-it-decides.md). An error ends the command. Each code has a page, and what engines,\n"
        "docker and the kernel die of is told in [the catalogue of failures](failures.md), too.\n",
    ]
    for title, rows in groups.items():
        parts += [f"## {title}\n", "| code | where | means |\n|---|---|---|"]
        for code, places in rows.items():
            if code not in summaries:
                continue  # a failure that is told in the catalogue alone
            where = "; ".join(dict.fromkeys(map(str, places)))
            parts.append(f"| [{code}]({code}.md) | {where} | {summaries.get(code, '')} |")
        parts.append("")
    return "\n".join(parts)


def summary(text: str) -> str:
    """The first sentence of a page, below its title and its places."""
    body = " ".join(text.split("\n\n")[2].split()) if text.count("\n\n") >= 2 else ""
    return body.partition(". ")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
