"""Comparisons of values that were read from Python source: True, False, or None where reading can't tell."""

from __future__ import annotations

import ast
from typing import Any

from bascule.probe.values import PLAIN, Table, Unknown


def compare(operator: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Whether `left operator right` holds; only what is plain is compared, because nested values cost without end."""
    if isinstance(operator, ast.In | ast.NotIn):
        found = _contains(left, right)
        return None if found is None else found == isinstance(operator, ast.In)
    if not (isinstance(left, PLAIN) and isinstance(right, PLAIN)):
        return None
    if isinstance(operator, ast.Eq | ast.Is):
        return left == right
    return left != right if isinstance(operator, ast.NotEq | ast.IsNot) else None


def _contains(item: Any, holder: Any) -> bool | None:
    """Whether a text is in a text, a list or a table; a gap there makes a no uncertain."""
    if not isinstance(item, str) or not isinstance(holder, str | tuple | Table):
        return None
    if isinstance(holder, str):
        return item in holder
    items, gaps = (holder.entries, holder.gaps) if isinstance(holder, Table) else (holder, ())
    if any(isinstance(other, str) and other == item for other in items):
        return True
    unsure = gaps or any(isinstance(other, Unknown) for other in items)
    return None if unsure else False
