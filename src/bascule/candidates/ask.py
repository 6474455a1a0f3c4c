"""What candidates are asked for, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bascule import settings
from bascule.core.nouns import Model, Node
from bascule.core.reading import Unreadable
from bascule.discover.docker_hub import HUB
from bascule.discover.images import Images, read_images
from bascule.discover.rank import Ranked, Ranking, Wanted
from bascule.engines.catalogue import ENGINES
from bascule.probe.targets import MOST_LAYER
from bascule.recipe.schema import CandidateSpec, Recipe
from bascule.registry.access import Access
from bascule.registry.patience import Allowance
from bascule.registry.troubles import ANSWER, RegistryTrouble
from bascule.remote.connect import Runners
from bascule.remote.docker import image_arch

AT_ONCE = 8  # images that are looked into at once
LIMIT = 20  # images of registries that are looked into


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Ask:
    """For which model and nodes candidates are looked for, and how far."""

    model: Model
    nodes: Sequence[Node] = ()
    runners: Runners = field(default_factory=dict)
    recipe: Recipe | None = None
    base: Path = Path()
    words: Sequence[str] = ()  # engine flags for every candidate
    environments: Sequence[str] = ()  # where to look for engines on the nodes; () = the usual places
    references: Sequence[str] = ()  # images that a person names
    arch: str = ""  # instead of the nodes': arm64
    gpu: str = ""  # such as sm_121: also ask for its kernels
    engine: str = ""  # only this one
    trust: Sequence[str] = ()
    offline: bool = False  # no registry and no hub
    search: bool = False  # registries even when something on the nodes can serve it
    limit: int = LIMIT
    access: Access = field(default_factory=lambda: Access(most=MOST_LAYER))
    images: Images = field(default_factory=read_images)
    hub: str = HUB
    now: Callable[[], datetime] = _now
    tell: Callable[[str], None] = lambda _: None

    @property
    def platforms(self) -> tuple[str, ...]:
        """What the nodes run: linux/arm64."""
        arches = [self.arch] if self.arch else [_arch(node) for node in self.nodes]
        return tuple(dict.fromkeys(f"linux/{arch}" for arch in arches if arch))

    @property
    def wanted(self) -> Wanted:
        """For whom to rank."""
        gguf = self.model.path.endswith(".gguf")
        unfit = {
            name: "it takes GGUF files alone" if name == "llamacpp" else "it doesn't take GGUF files here"
            for name in ENGINES
            if (name == "llamacpp") != gguf
        }
        return Wanted(
            tuple(node.name for node in self.nodes),
            self.platforms,
            self._accelerator(),
            self.gpu,
            (self.engine,) if self.engine else tuple(ENGINES),
            unfit,
            tuple(self.trust),
        )

    @property
    def named_by_recipe(self) -> Sequence[CandidateSpec]:
        """The recipe's own candidates."""
        return self.recipe.candidates if self.recipe else ()

    def engine_named(self, image: str) -> str:
        """The engine that the recipe says is in an image; "" when it says nothing."""
        return next((spec.engine for spec in self.named_by_recipe if spec.image == image), "")

    def _accelerator(self) -> str:
        """What the nodes compute with; "" where a node doesn't say."""
        if self.gpu:
            return "cuda"
        seen = {bool(node.facts.gpus) if node.facts.gpus is not None else None for node in self.nodes}
        return "cuda" if seen == {True} else "cpu" if seen == {False} else ""


def ask_for(model: Model, nodes: Sequence[Node], runners: Runners, tell: Callable[[str], None]) -> Ask:
    """The question as the variables of settings.py have it. Raises RecipeError for a catalogue that can't be read."""
    file = os.environ.get(settings.IMAGES_VARIABLE, "")
    return Ask(
        model,
        nodes,
        runners,
        offline=settings.offline(),
        access=Access(tell=tell, most=MOST_LAYER, cache=settings.cache_dir() / "registry"),
        images=read_images(Path(file) if file else None),
        hub=(os.environ.get(settings.DOCKER_HUB_VARIABLE) or HUB).rstrip("/"),
        tell=tell,
    )


@dataclass(frozen=True, slots=True)
class Unread:
    """A source, or an image of one, that gave no answer: nothing is known of it, which is no no."""

    source: str
    trouble: str  # its code
    why: str
    advice: str = ""

    @classmethod
    def of(cls, trouble: Unreadable, source: str = "") -> Unread:
        """From what was raised."""
        if isinstance(trouble, RegistryTrouble):
            return cls(source or trouble.spot.path, trouble.kind, trouble.why, trouble.advice)
        return cls(source or trouble.spot.path, ANSWER, trouble.why)


@dataclass(frozen=True)
class Discovered:
    """The candidates, the best first, and what could not be asked."""

    ranking: Ranking
    unread: tuple[Unread, ...]
    reached: bool  # registries were asked
    received: int  # bytes that came from registries and hubs
    seconds: float
    allowances: Mapping[str, Allowance]  # by host

    @property
    def to_ask_about(self) -> Mapping[str, Ranked]:
        """Publishers of community images that nobody has said to trust, each with the best of its images."""
        best: dict[str, Ranked] = {}
        for row in self.ranking.held:
            best.setdefault(row.offer.publisher.words[1], row)
        return best


def _arch(node: Node) -> str:
    docker = node.facts.docker
    return docker.arch if docker else image_arch(node.facts.arch) if node.facts.arch else ""
