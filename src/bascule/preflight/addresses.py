"""The addresses of a start: chosen from facts, proven between every two nodes, and chosen again where that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bascule.core.addresses import AddressPlan, Pair
from bascule.core.notices import Notice
from bascule.core.nouns import Fate, Finding, Node
from bascule.preflight.choose import choose_links, next_plan, without_rail
from bascule.preflight.judge import judge, passed_over, rail_lost, sources
from bascule.preflight.posts import Post, open_posts
from bascule.preflight.prove import PATIENCE, prove
from bascule.preflight.retold import Environments, retold


@dataclass(frozen=True, slots=True)
class Proven:
    """An address plan with what was measured; the first finding is the weightiest, and OK when all is well."""

    plan: AddressPlan | None  # None: there is none, the finding says why
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def fails(self) -> bool:
        """True when it is proven that a start on these nodes would fail."""
        return self.findings[0].fate is Fate.CLUSTER


async def prove_addresses(
    nodes: Sequence[Node], envs: Environments | None = None, patience: float = PATIENCE
) -> Proven:
    """Choose addresses for these nodes, head first, and prove them. Expected failures are findings; nothing is raised.

    Where the best link fails the proof, the next best one is taken; where none stands it, it is the best one that is
    told. `envs` are variables of ranks that change what a node tells. A peer that says nothing for `patience` seconds
    is given up.
    """
    plan = choose_links(nodes, _now())
    if isinstance(plan, Finding):
        return Proven(None, (), (plan,))
    if len(nodes) == 1:
        return Proven(plan, (), judge(plan, (), {}, _now()), plan.notices)
    async with open_posts(nodes) as posts:
        proof = _Proof(nodes, posts, envs or {}, patience)
        first = found = await proof.of(plan)
        passed: list[Notice] = []
        while found.fails and found.plan and (other := next_plan(found.plan, nodes, _now())):
            passed.append(passed_over(found.plan.link, found.findings))
            found = await proof.of(other)
    return first if found.fails else replace(found, notices=(*passed, *found.notices))


@dataclass(frozen=True, slots=True)
class _Proof:
    nodes: Sequence[Node]
    posts: Mapping[str, Post]
    envs: Environments
    patience: float

    async def of(self, plan: AddressPlan) -> Proven:
        """What one plan is worth; RDMA ports on a further network that fails are taken out of it."""
        plan = retold(plan, self.nodes, self.envs)
        told = [one for row in plan.rows for one in row.told]
        pairs = await prove(self.posts, told, patience=self.patience)
        findings = judge(plan, pairs, self._ran, _now())
        notices = [*plan.notices, *sources(plan.link, pairs, _now())]
        for rail in plan.rails if findings[0].fate is not Fate.CLUSTER else ():
            tried = await prove(self.posts, rail.told, rates=False, patience=self.patience)
            if any(pair.bad for pair in tried):
                plan = without_rail(plan, rail, self.nodes)
                notices.append(rail_lost(rail, tried, self._ran, _now()))
        return Proven(plan, tuple(pairs), findings, tuple(notices))

    @property
    def _ran(self) -> Mapping[str, str]:
        return {name: post.what for name, post in self.posts.items()}


def _now() -> datetime:
    return datetime.now(UTC)
