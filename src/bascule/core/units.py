"""Figures in words, wherever a person reads them."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes that travel or lie on a disk: 14.2 GB, 3.1 MB."""
    return f"{count / 1e9:.1f} GB" if count >= 10**8 else f"{count / 1e6:.1f} MB"


def rate(count: float) -> str:
    """Bytes a second of a link, as links are sold: 23.1 Gbit/s."""
    return f"{8 * count / 1e9:.3g} Gbit/s"
