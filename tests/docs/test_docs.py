"""What the docs say is what the program does: commands, options, codes, recipe keys, dependencies, links, examples.

Every check gives its complaints. It has none about the repository, and is shown to have one about its own fault.
"""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from codes import Unresolved, uses
from cyclopts import App, CycloptsError, MissingArgumentError
from generate import arguments, command_names, finding_pages, option_names, schema_keys, stale

from bascule.cli import app
from bascule.errors import RecipeError
from bascule.recipe.load import parse
from bascule.recipe.schema import Recipe

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(bascule [^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^]\n]*\]\(([^)\s]+)\)")
OUTPUT = ("text", "yaml", "python", "json")  # fences that hold no commands


def every_command_and_option(root, top=app):
    text = (root / "docs/commands.md").read_text()
    sections = dict(re.findall(r"^## bascule (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    wanted = [(name, option) for name in command_names(top) for option in _options(top, name)]
    missing = [f"command {name}" for name in command_names(top) if name not in sections]
    return missing + [
        f"option {name} {option}" for name, option in wanted if f"`{option}" not in sections.get(name, "")
    ]


def _options(top, name):
    return [option for argument in arguments(top, name) if _is_option(argument) for option in option_names(argument)]


def _is_option(argument):
    return argument.field_info.kind is argument.field_info.KEYWORD_ONLY


def every_code_has_a_page(root):
    """Its own, or a part of the catalogue of failures."""
    pages = {path.stem for path in finding_pages(root / "docs")} | _failures_told(root)
    return sorted({use.code for use in uses(root / "src/bascule")} - pages)


def _failures_told(root):
    return set(re.findall(r"^## (\S+)$", (root / "docs/findings/failures.md").read_text(), re.MULTILINE))


def every_page_has_a_code(root):
    pages = {path.stem for path in finding_pages(root / "docs")}
    return sorted(pages - {use.code for use in uses(root / "src/bascule")})


def pages_are_complete(root):
    """A title that is the code, then what it means, what was seen, what bascule does, what a person can do."""
    wrong = []
    for path in finding_pages(root / "docs"):
        text = path.read_text()
        parts = (f"# {path.stem}\n", "\n**Seen:** ", "\n**bascule:** ", "\n**You:** ")
        lines = sum(bool(line) for line in text.splitlines())
        if not all(part in text for part in parts) or not 5 <= lines <= 15:
            wrong.append(path.name)
    return wrong


def every_recipe_key(root, recipe=Recipe):
    headings = re.findall(r"^## `(.+)`$", (root / "docs/recipe.md").read_text(), re.MULTILINE)
    missing = [key for key in schema_keys(recipe) if key not in headings]
    return missing + [key for key in headings if key not in schema_keys(recipe)]


def every_recipe_key_has_words(root):
    sections = re.findall(r"^## `(.+)`\n\n(.)", (root / "docs/recipe.md").read_text(), re.MULTILINE)
    return [key for key, first in sections if first == "-"]


def every_dependency(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[\w.-]+", one).group() for one in wanted}
    told = set(re.findall(r"^- \*\*([\w.-]+)\*\*: ", (root / "docs/dependencies.md").read_text(), re.MULTILINE))
    programs = {"ssh", "timeout", "setsid", "nvidia-smi"}
    return sorted(names - told) + sorted(name for name in told - names - programs)


def nothing_is_stale(root):
    return [path.name for path in stale(root / "docs", root / "src/bascule")]


def links_lead_somewhere(root):
    links = [(path, link) for path in _texts(root) for link in LINK.findall(_without_fences(path.read_text()))]
    return [
        f"{path.name}: {link}" for path, link in links if not re.match(r"\w+:", link) and not _leads(root, path, link)
    ]


def _leads(root, path, link):
    """A file of the copy, or one of the repository that the copy leaves out; and a heading in it."""
    target, _, anchor = link.partition("#")
    there = (path.parent / target).resolve() if target else path
    if not there.exists():
        there = ROOT / there.relative_to(root.resolve())
    return there.exists() and (not anchor or anchor in _anchors(there.read_text()))


def commands_can_be_parsed(root):
    return [f"{path.name}: {line}" for path in _texts(root) for line in _commands(path.read_text()) if _refused(line)]


def mentions_can_be_parsed(root):
    """`bascule up` in a sentence names a command, with no need to be complete."""
    texts = [(path, _without_fences(path.read_text())) for path in _texts(root)]
    mentioned = [(path, line) for path, text in texts for line in INLINE.findall(text)]
    return [f"{path.name}: {line}" for path, line in mentioned if _refused(line, incomplete=True)]


def recipes_can_be_loaded(root):
    wrong = []
    for path in _texts(root):
        for kind, body in FENCE.findall(path.read_text()):
            if kind in ("yaml", "yml"):
                try:
                    parse(body, path.name)
                except RecipeError as error:
                    wrong.append(error.says)
    return wrong


def _texts(root):
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def _without_fences(text):
    return FENCE.sub("", text)


def _anchors(text):
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(text):
    """Lines of fenced blocks that call bascule, without prompt, comment, and what a pipe does to their output."""
    lines = (line for kind, body in FENCE.findall(text) if kind not in OUTPUT for line in body.splitlines())
    calls = (re.match(r"(?:\$ )?(?:\S*/)?(bascule(?: .*)?)$", line.strip()) for line in lines)
    return [re.split(r"\s[|>&;#]", call.group(1))[0] for call in calls if call]


def _refused(line, *, incomplete=False):
    try:
        app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)
    except MissingArgumentError:
        return not incomplete
    except (CycloptsError, ValueError):
        return True
    return False


CHECKS = (
    every_command_and_option,
    every_code_has_a_page,
    every_page_has_a_code,
    pages_are_complete,
    every_recipe_key,
    every_recipe_key_has_words,
    every_dependency,
    nothing_is_stale,
    links_lead_somewhere,
    commands_can_be_parsed,
    mentions_can_be_parsed,
    recipes_can_be_loaded,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_docs(check):
    assert check(ROOT) == []


def cut(path, pattern):
    def damage(root):
        text = (root / path).read_text()
        assert re.search(pattern, text, re.MULTILINE | re.DOTALL), f"{path} has no {pattern}"
        (root / path).write_text(re.sub(pattern, "", text, count=1, flags=re.MULTILINE | re.DOTALL))

    return damage


def add(path, text):
    def damage(root):
        with (root / path).open("a") as file:
            file.write(text)

    return damage


def remove(path):
    return lambda root: (root / path).unlink()


def put(path, text):
    return lambda root: (root / path).write_text(text)


NEW_ERROR = '\n\ndef f() -> None:\n    raise RecipeError("brand-new", "says")\n'
NEW_FINDING = '\n\nNEW = "brand-new"\n\n\ndef f(at):\n    return Finding(Step.WATCH, Fate.OK, NEW, "says", ())\n'
NEW_OUTCOME = (
    '\n\ndef f(ok):\n    code = "right-answer" if ok else "brand-new"\n    return Outcome(Fate.OK, code, "says")\n'
)
NEW_FAILURE = (
    '\n[[failure]]\nid = "brand-new"\nphase = "import"\nclass = "crash"\nsignature = "xxxx"\nfate = "again"\n'
    'cause = "x"\nsource = "x"\nproof = "run"\nsamples = ["xxxx"]\n'
)

FAULTS = (
    (every_command_and_option, cut("docs/commands.md", "^## bascule why.*?(?=^## )"), "command why"),
    (every_command_and_option, cut("docs/commands.md", "^- `--venv TEXT`[^\n]*\n"), "option up --venv"),
    (every_command_and_option, cut("docs/commands.md", ", `-f`"), "option logs -f"),
    (every_code_has_a_page, remove("docs/findings/tags-leaked.md"), "tags-leaked"),
    (every_code_has_a_page, add("src/bascule/recipe/load.py", NEW_ERROR), "brand-new"),
    (every_code_has_a_page, add("src/bascule/watch/follow.py", NEW_FINDING), "brand-new"),
    (every_code_has_a_page, add("src/bascule/verify/probes.py", NEW_OUTCOME), "brand-new"),
    (every_code_has_a_page, add("src/bascule/watch/failures/vllm.toml", NEW_FAILURE), "brand-new"),
    (every_page_has_a_code, put("docs/findings/long-gone.md", "# long-gone\n"), "long-gone"),
    (pages_are_complete, cut("docs/findings/usage.md", r"\*\*You:\*\*"), "usage.md"),
    (pages_are_complete, add("docs/findings/usage.md", "more\n" * 12), "usage.md"),
    (every_recipe_key, cut("docs/recipe.md", r"^## `nodes\[\]\.address`\n"), "nodes[].address"),
    (every_recipe_key, add("docs/recipe.md", "\n## `image`\n"), "image"),
    (every_recipe_key_has_words, cut("docs/recipe.md", r"^Where the ranks meet.*?\n\n"), "rendezvous_port"),
    (every_dependency, cut("docs/dependencies.md", r"^- \*\*rich\*\*.*?\n"), "rich"),
    (every_dependency, cut("pyproject.toml", r'^  "rich[^\n]*\n'), "rich"),
    (nothing_is_stale, cut("docs/recipe.md", "^- default: `8000`\n"), "recipe.md"),
    (nothing_is_stale, cut("docs/commands.md", "^- `--port NUMBER`[^\n]*\n"), "commands.md"),
    (nothing_is_stale, cut("docs/findings/README.md", r"^\| \[usage\][^\n]*\n"), "README.md"),
    (nothing_is_stale, cut("docs/findings/usage.md", "exit 2"), "usage.md"),
    (nothing_is_stale, add("src/bascule/watch/failures/vllm.toml", NEW_FAILURE), "failures.md"),
    (links_lead_somewhere, add("docs/tutorial.md", "[x](nowhere.md)\n"), "tutorial.md: nowhere.md"),
    (links_lead_somewhere, add("docs/tutorial.md", "[x](recipe.md#nothing)\n"), "tutorial.md: recipe.md#nothing"),
    (commands_can_be_parsed, add("docs/tutorial.md", "\n```sh\n$ bascule up x.yaml --nodes a\n```\n"), "--nodes"),
    (commands_can_be_parsed, add("docs/tutorial.md", "\n```\nbascule serve x.yaml | less\n```\n"), "serve"),
    (commands_can_be_parsed, add("docs/tutorial.md", "\n```sh\nbascule up\n```\n"), "bascule up"),
    (mentions_can_be_parsed, add("docs/tutorial.md", "\nSay `bascule stop qwen` then.\n"), "bascule stop qwen"),
    (recipes_can_be_loaded, add("docs/tutorial.md", "\n```yaml\nservice: x\nmodel: /m\n```\n"), "`nodes` is missing"),
)


@pytest.mark.parametrize(("check", "damage", "complaint"), FAULTS)
def test_a_fault_is_told(check, damage, complaint, copy):
    assert complaint not in " ".join(check(copy))
    damage(copy)
    assert complaint in " ".join(check(copy))


def test_a_code_that_cannot_be_read_is_told(copy):
    add("src/bascule/recipe/load.py", '\n\ndef f(x):\n    raise RecipeError(f"a-{x}", "says")\n')(copy)
    with pytest.raises(Unresolved, match=r"a-\{x\}"):
        every_code_has_a_page(copy)


def test_a_new_command_or_option_is_told():
    top = App(name="bascule")

    @top.command
    def why(run: int | None = None, *, loud: bool = False) -> None:
        """Tell."""

    @top.command
    def sing() -> None:
        """Sing."""

    assert every_command_and_option(ROOT, top) == ["command sing", "option why --loud", "option why --no-loud"]


def test_a_new_recipe_key_is_told():
    class Bigger(Recipe):
        colour: str = ""

    assert every_recipe_key(ROOT, Bigger) == ["colour"]
