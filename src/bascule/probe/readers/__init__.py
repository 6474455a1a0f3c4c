"""One reader per engine: where it keeps what it knows, release by release; a module here and a file in data/engines."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from bascule.probe.readers.base import Reader

__all__ = ["READERS", "Reader"]


def _found() -> Mapping[str, Reader]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    readers = [module.READER for module in modules if hasattr(module, "READER")]
    return {reader.engine: reader for reader in sorted(readers, key=lambda reader: reader.order)}


READERS: Mapping[str, Reader] = _found()  # in the order in which a target is searched for an engine
