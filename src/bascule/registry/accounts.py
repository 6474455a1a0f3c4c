"""Accounts for registries, as docker and podman keep them: in a file, or with a helper program. Never shown."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

LONGEST_FILE = 4 << 20  # bytes
WITHIN = 20.0  # seconds for a helper program, which may have to unlock its store
_HELPER = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_IDENTITY = "<token>"  # the user name by which helpers say that the secret is an identity token


@dataclass(frozen=True, slots=True)
class Account:
    """Who one is at a registry."""

    user: str = field(repr=False)
    secret: str = field(repr=False)
    kind: Literal["password", "identity", "registry"] = "password"  # identity: exchanged for a token; registry: one

    @property
    def basic(self) -> str:
        """For an Authorization of the kind Basic."""
        return base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where accounts are looked for: docker's file and helpers, then podman's files."""

    docker: Path
    podman: tuple[Path, ...] = ()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Accounts:
        """As docker (DOCKER_CONFIG) and podman (REGISTRY_AUTH_FILE) look for them."""
        home = Path(env.get("HOME") or Path.home())
        docker = Path(env.get("DOCKER_CONFIG") or home / ".docker").expanduser()
        named = env.get("REGISTRY_AUTH_FILE")
        places = [Path(env["XDG_RUNTIME_DIR"]) if env.get("XDG_RUNTIME_DIR") else None, _config_home(env, home)]
        usual = tuple(place / "containers/auth.json" for place in places if place)
        return cls(docker / "config.json", (Path(named),) if named else usual)

    def of(self, names: Sequence[str], path: str = "") -> tuple[Account | None, str]:
        """The account under one of these names, or None; and why a helper could not say it, or "".

        `path` is the image's repository: podman may keep an account for a part of a registry.
        """
        found = _read(self.docker)
        account, why = _from_helper(found, names)
        account = account or _from_file(found, names)
        plain = [name for name in names if "://" not in name]
        longer = [part for name in plain for part in _parts(f"{name}/{path}".rstrip("/"))]
        for file in self.podman:
            account = account or _from_file(_read(file), (*longer, *names))
        return account, "" if account else why


def _config_home(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config")


def _parts(name: str) -> Iterator[str]:
    """host/a/b, host/a, host."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _read(path: Path) -> dict[str, Any]:
    """The file; nothing where it is missing or broken: then there is no account."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(LONGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _from_file(found: Mapping[str, Any], names: Sequence[str]) -> Account | None:
    rows = found.get("auths")
    for name in names:
        row = rows.get(name) if isinstance(rows, dict) else None
        if isinstance(row, dict) and (account := _of_row(row)):
            return account
    return None


def _of_row(row: Mapping[str, Any]) -> Account | None:
    for key, kind in (("identitytoken", "identity"), ("registrytoken", "registry")):
        if isinstance(row.get(key), str) and row[key]:
            return Account("", row[key], "identity" if kind == "identity" else "registry")
    try:
        user, colon, secret = base64.b64decode(str(row.get("auth", "")), validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return Account(user, secret.rstrip("\0")) if colon and user else None


def _from_helper(found: Mapping[str, Any], names: Sequence[str]) -> tuple[Account | None, str]:
    """What the helper of one of these names says; the one for all registries comes last."""
    own = found.get("credHelpers")
    pairs = [(own[name], name) for name in names if isinstance(own, dict) and isinstance(own.get(name), str)]
    pairs += [(found["credsStore"], name) for name in names if isinstance(found.get("credsStore"), str)]
    trouble = ""
    for helper, name in pairs:
        account, why = _ask(helper, name)
        if account:
            return account, ""
        trouble = trouble or why
    return None, trouble


def _ask(helper: str, name: str) -> tuple[Account | None, str]:
    """One question to docker-credential-HELPER; what it prints is never shown."""
    program = f"docker-credential-{helper}"
    if not _HELPER.fullmatch(helper):
        return None, "the credential helper in docker's config has a name that can't be"
    if not shutil.which(program):
        return None, f"{program} is not installed"
    try:
        done = subprocess.run(
            (program, "get"), input=name.encode(), capture_output=True, timeout=WITHIN, check=False, env=os.environ
        )
    except (OSError, subprocess.TimeoutExpired) as trouble:
        return None, f"{program} gave no answer: {type(trouble).__name__}"
    if done.returncode:
        return None, "" if b"not found" in done.stdout else f"{program} ended with status {done.returncode}"
    return _of_answer(done.stdout, program)


def _of_answer(data: bytes, program: str) -> tuple[Account | None, str]:
    try:
        said = json.loads(data[:LONGEST_FILE])
        user, secret = said["Username"], said["Secret"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None, f"{program} gave an answer that is no account"
    if not (isinstance(user, str) and isinstance(secret, str) and secret):
        return None, f"{program} gave an answer that is no account"
    return Account("", secret, "identity") if user == _IDENTITY else Account(user, secret), ""
