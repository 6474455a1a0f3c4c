"""JSON that somebody else wrote: read within bounds, and told in a sentence when it can't be meant (pure)."""

from __future__ import annotations

import json
from reprlib import Repr
from typing import Any

from bascule.errors import ModelError

MAX_CONFIG = 16 * 1024 * 1024  # bytes; a config.json beyond that is none


def json_object(place: str, raw: bytes, limit: int = MAX_CONFIG) -> dict[str, Any]:
    """The JSON object in these bytes. Raises ModelError for everything else, however deep or long it is."""
    if len(raw) > limit:
        raise broken(f"{place} is larger than {limit >> 20} MiB", len(raw))
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as trouble:
        raise ModelError("model-broken", f"{place} is no JSON", seen=str(trouble)[:200]) from trouble
    if not isinstance(found, dict):
        raise ModelError("model-broken", f"{place} is no object", seen=type(found).__name__)
    return found


def broken(says: str, seen: object) -> ModelError:
    """The error for a file of the model that can't be meant; what was seen is shortened."""
    return ModelError("model-broken", says, seen=shortened(seen))


def is_count(value: object, most: int) -> bool:
    """True for a whole number from 0 to `most`; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def shortened(seen: object) -> str:
    """What was seen, short enough for a sentence."""
    look = Repr()
    look.maxlevel, look.maxstring, look.maxother = 3, 80, 80
    return look.repr(seen)
