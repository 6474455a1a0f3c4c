"""Hides secrets, names and addresses in text; equal ones get equal masks, so that it can still be read (pure)."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from bascule.core.plain import MASK, is_secret, to_plain

SHORTEST = 6  # characters of a secret's value that is hidden wherever it stands; a shorter one is too often a word
_PAIR = re.compile(r"\b([A-Za-z][A-Za-z0-9_]{0,80})=('[^'\n]*'|\"[^\"\n]*\"|[^\s'\"\\,;]+)")
_JSON = re.compile(r"([\"'])([A-Za-z][\w-]{0,80})\1(\s{0,4}[:,=]\s{0,4})([\"'])((?:[^\"'\\\n]|\\.)*)\4")
_FLAG = re.compile(r"(--?(?:[\w-]{0,40}-)?(?:api-key|token|password))(?:[= ]|['\"], ?['\"])([^\s'\",]+)")
_HARMLESS = re.compile(r"[0-9.]{1,9}|[Tt]rue|[Ff]alse|[Nn]one|null|\[[0-9, ]*|<[|\w]*>?")
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}")
_LOGIN = re.compile(r"(://)[^/\s:@'\"]{1,80}:[^/\s@'\"]{1,200}@")
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = re.compile(rf"(?<![A-Za-z0-9.])(?<!==)({_OCTET})\.({_OCTET})\.({_OCTET})\.({_OCTET})(?![A-Za-z0-9]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:]|\.\d)")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_SERIAL = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=Serial Number)\s*: \d+")
_HOME = re.compile(r"(?<![\w.])(/(?:home|Users|data/home))/([A-Za-z0-9._-]{1,64})")
_USER = re.compile(r"\b(?:USER|LOGNAME|SUDO_USER|USERNAME)=([A-Za-z0-9._-]{1,64})")
_LOGS_IN = re.compile(r"(?<![\w/:.])([A-Za-z_][A-Za-z0-9_.-]{1,31})@([A-Za-z0-9][A-Za-z0-9.-]{1,253})")
_HOST = re.compile(r"\b(?:HOSTNAME|HOST|nodename)=([A-Za-z0-9][A-Za-z0-9.-]{1,253})")
_NETWORKS = ("192.0.2", "198.51.100", "203.0.113")  # for documentation, RFC 5737; then those of 198.18.0.0/15, RFC 2544


def secret_values(env: Mapping[str, str]) -> set[str]:
    """Values that must not be shown, by the names of their variables."""
    return {value for name, value in env.items() if _is_secret(name, value) and len(value) >= SHORTEST}


def hide_secrets(text: str, values: Iterable[str] = ()) -> str:
    """Without these values, without what stands behind a secret's name, and without what looks like a token."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = _KEY.sub(MASK, text)
    text = _PAIR.sub(lambda found: f"{found[1]}={MASK}" if _is_secret(found[1], found[2]) else found[0], text)
    text = _JSON.sub(_masked_json, text)
    text = _FLAG.sub(lambda found: found[0][: -len(found[2])] + MASK, text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _LOGIN.sub(rf"\1{MASK}@", text)
    return _tokens().sub(MASK, text)


def hide_in_plain(value: Any) -> Any:
    """The same for parsed JSON; a list of NAME=value, such as Docker's Env, is seen as variables."""
    if isinstance(value, Mapping):
        return to_plain({key: hide_in_plain(item) for key, item in value.items()})
    if isinstance(value, list):
        return to_plain([hide_in_plain(item) for item in value])
    return hide_secrets(value) if isinstance(value, str) else value


@dataclass
class Masks:
    """Names and addresses and what stands for each; one for all texts that belong together."""

    hosts: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def learn(self, text: str) -> None:
        """Note the names in this text; a name is then hidden in every text, before and behind."""
        self.secrets |= secret_values({found[1]: found[2].strip("'\"") for found in _PAIR.finditer(text)})
        for found in _HOME.finditer(text):
            self._name(self.users, found[2], "user")
        for found in _USER.finditer(text):
            self._name(self.users, found[1], "user")
        for found in _HOST.finditer(text):
            self.learn_host(found[1])
        for found in _LOGS_IN.finditer(text):
            self._name(self.users, found[1], "user")
            self.learn_host(found[2])

    def learn_host(self, name: str) -> None:
        """Note a host; its first word and the whole are one host. An address is no name."""
        name = name.strip(".")
        short = name.split(".")[0]
        if _IPV4.fullmatch(name) or short.isdigit() or short.lower() in _common():
            return
        mask = self._name(self.hosts, short, "host")
        if mask and name != short:
            self.hosts[name] = f"{mask}.example"

    def apply(self, text: str) -> str:
        """The text without all that."""
        text = hide_secrets(text, self.secrets)
        text = _MAC.sub(lambda found: self._number("mac", found[0], "02:00:00:00:00:{:02x}"), text)
        text = _SERIAL.sub(lambda found: self._number("serial", found[0], " serial-{}"), text)
        text = _IPV6.sub(self._ipv6, text)
        text = _IPV4.sub(self._ipv4, text)
        names = {**self.users, **self.hosts}
        return _word_pattern(names).sub(lambda found: names[found[0]], text) if names else text

    def _name(self, names: dict[str, str], name: str, kind: str) -> str:
        if name.lower() in _common():
            return ""
        number = len({mask.split(".")[0] for mask in names.values()}) + 1
        return names.setdefault(name, f"{kind}{number}")

    def _ipv4(self, found: re.Match[str]) -> str:
        """Addresses of one /24 stay in one; loopback, link-local, 0.x and masks of networks stay as they are."""
        whole, net = found[0], found[0].rpartition(".")[0]
        ip = ipaddress.ip_address(whole)
        if ip.is_loopback or ip.is_multicast or ip.is_link_local or found[1] in ("0", "255"):
            return whole
        if whole not in self.addresses:
            number = len(self.networks)
            other = _NETWORKS[number] if number < len(_NETWORKS) else f"198.{18 + number // 256 % 2}.{number % 256}"
            self.networks.setdefault(net, other)
            last = found[4]
            if last not in ("0", "255"):  # of a network, of its broadcast
                self.counts[net] = self.counts.get(net, 0) + 1
                last = str(self.counts[net])
            self.addresses[whole] = f"{self.networks[net]}.{last}"
        return self.addresses[whole]

    def _ipv6(self, found: re.Match[str]) -> str:
        try:
            ip = ipaddress.IPv6Address(found[0])
        except ValueError:
            return found[0]  # a time, or a part of a hash
        if ip.is_loopback or ip.is_unspecified or ip.is_multicast:
            return found[0]
        return self._number("ipv6", str(ip), "2001:db8::{:x}")  # for documentation, RFC 3849

    def _number(self, kind: str, text: str, shape: str) -> str:
        known = self.addresses.get(text)
        if known is None:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            known = self.addresses[text] = shape.format(self.counts[kind])
        return known


def _word_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """These names as words; a short one, which may be any word, only where it stands as in a path or a login."""
    ordered = sorted(names, key=len, reverse=True)
    long = "|".join(re.escape(name) for name in ordered if len(name) > 3)
    short = "|".join(re.escape(name) for name in ordered if len(name) <= 3)
    wide = [rf"(?<![A-Za-z0-9])(?:{long})(?![A-Za-z0-9])"] if long else []
    narrow = [rf"(?<=[/=@])(?:{short})(?![A-Za-z0-9])|(?<![A-Za-z0-9])(?:{short})(?=@)"] if short else []
    return re.compile("|".join([*wide, *narrow]))


def _masked_json(found: re.Match[str]) -> str:
    if not _is_secret(found[2], found[5]):
        return found[0]
    return f"{found[1]}{found[2]}{found[1]}{found[3]}{found[4]}{MASK}{found[4]}"


def _is_secret(name: str, value: str) -> bool:
    """By its name; but `pad_token_id=151643` is none: a number or a word of programs is nobody's secret."""
    return is_secret(name.upper().replace("-", "_")) and bool(value) and not _HARMLESS.fullmatch(value)


@cache
def _tokens() -> re.Pattern[str]:
    return re.compile("|".join(row["shape"] for row in _words()["token"]))


@cache
def _common() -> frozenset[str]:
    return frozenset(name for row in _words()["common"] for name in row["names"])


def _words() -> dict[str, Any]:
    return tomllib.loads(resources.files("bascule.watch").joinpath("masking.toml").read_text())
