"""Logins at registries: the token that a challenge asks for, or the account itself.

The dance is that of distribution's token authentication (distribution.github.io/distribution/spec/auth/token and
…/oauth, 2026-12); Docker Hub, GHCR and NGC (user `$oauthtoken`) speak it, plain registries may want Basic.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bascule.registry.access import Access
from bascule.registry.accounts import Account
from bascule.registry.doors import Door
from bascule.registry.oci import json_object
from bascule.registry.troubles import ANSWER, LOGIN, RegistryTrouble, says
from bascule.registry.wire import AGENT, Asking, Body, answered, whole

LONGEST_TOKEN = 64 << 10  # bytes of a login's answer
LONGEST_CHALLENGE = 4096
_FIELD = re.compile(r'(\w+)="([^"]*)"')


def authorization(challenge: str, door: Door, asking: Asking, repository: str, access: Access) -> str:
    """The Authorization header that answers a challenge. Raises RegistryTrouble; no text shows an account."""
    kind, _, rest = challenge.partition(" ")
    account, why = access.accounts.of(door.accounts, repository)
    if account and account.kind == "registry":
        return f"Bearer {account.secret}"
    if kind.lower() == "basic" and account and account.kind == "password":
        return f"Basic {account.basic}"
    fields = dict(_FIELD.findall(rest[:LONGEST_CHALLENGE]))
    if kind.lower() != "bearer" or "realm" not in fields:
        raise RegistryTrouble(LOGIN, asking.name, f"the registry {says(LOGIN)}{f': {why}' if why else ''}", door.host)
    if not fields["realm"].startswith("https://") and not door.insecure:
        what = "the registry wants a login over a connection that isn't encrypted"
        raise RegistryTrouble(LOGIN, asking.name, what, door.host)
    asks = {"service": fields["service"]} if fields.get("service") else {}
    asks["scope"] = f"repository:{repository}:pull"
    return f"Bearer {_token(replace(asking, url=fields['realm'], login=''), asks, account, access, why)}"


def _token(asking: Asking, asks: dict[str, str], account: Account | None, access: Access, why: str) -> str:
    """A token for this account; where the account is refused, one for anybody."""
    status, data = _post_or_get(asking, asks, account, access)
    if account and status in (400, 401, 403):
        access.tell(f"{asking.host} refuses the account of docker login; asking without it")
        status, data = _post_or_get(asking, asks, None, access)
    if status != 200:
        what = f"its login answers HTTP {status} (docker login)" + (f": {why}" if why else "")
        raise RegistryTrouble(LOGIN, asking.name, what, asking.host)
    answer = json_object(data, "the login of the registry")
    token = answer.get("token") or answer.get("access_token")
    if not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise RegistryTrouble(ANSWER, asking.name, "its login gives no token", asking.host)
    return token


def _post_or_get(asking: Asking, asks: dict[str, str], account: Account | None, access: Access) -> tuple[int, bytes]:
    """An identity token is exchanged by POST; everybody else asks by GET."""
    if account and account.kind == "identity":
        form = {"grant_type": "refresh_token", "client_id": AGENT, "refresh_token": account.secret, **asks}
        ask = replace(asking, method="POST", form=form, params={}, accept="application/json")
    else:
        login = f"Basic {account.basic}" if account else ""
        ask = replace(asking, method="GET", login=login, params=asks, accept="application/json")
    with answered(ask, access) as response:
        data = whole(ask, Body(response, access, lambda data: data), LONGEST_TOKEN)
        return response.status_code, data
