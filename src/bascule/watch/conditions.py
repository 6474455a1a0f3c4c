"""What evidence beside a line says for or against a failure: the other ranks' lines, counts, sockets (pure).

  all_said     every rank said it
  none_said    no rank said it
  peer_lacks   another rank did not say it
  count        it was repeated so often
  socket       a rank has a socket whose fields begin so: {state = "SYN-SENT"}

What was not looked at is None: never for, never against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bascule.watch.catalogue import When
from bascule.watch.samples import Socket
from bascule.watch.told import Told


def holds(
    when: When, mine: Told, peers: Sequence[Told], sockets: Mapping[int, Sequence[Socket]] | None = None
) -> bool | None:
    """True when all of it holds, False when some of it does not, None when something could not be told."""
    ranks = (mine, *peers)
    said = [all(pattern.pattern in rank.said for rank in ranks) for pattern in when.all_said]
    not_said = [all(pattern.pattern not in rank.said for rank in ranks) for pattern in when.none_said]
    told = [*said, *not_said, _lacks(when, peers), _repeats(when, mine), _has_socket(when, sockets)]
    if False in told:
        return False
    return None if None in told else True


def _lacks(when: When, peers: Sequence[Told]) -> bool | None:
    if when.peer_lacks is None:
        return True
    return any(when.peer_lacks.pattern not in peer.said for peer in peers) if peers else None


def _repeats(when: When, mine: Told) -> bool | None:
    return True if mine.notices >= when.count or when.count == 1 else None


def _has_socket(when: When, sockets: Mapping[int, Sequence[Socket]] | None) -> bool | None:
    if not when.socket:
        return True
    if sockets is None:
        return None
    every = [one for some in sockets.values() for one in some]
    return any(all(str(getattr(one, key)).startswith(text) for key, text in when.socket.items()) for one in every)
