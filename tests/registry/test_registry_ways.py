"""Mirrors and plain http as daemon.json has them, waiting when a registry says "later", and what is left to fetch."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.registry.access import PATIENCE
from bascule.registry.doors import Daemon, doors, is_insecure, read_daemon
from bascule.registry.image import fetch
from bascule.registry.oci import reference_of
from bascule.registry.patience import LATER, TRIES, Allowance, allowance, pause, retry_after
from bascule.registry.repository import Repository
from bascule.registry.troubles import RegistryTrouble
from registry.registry_parts import ACCOUNT, Front, direct, fronting, on

FILES = {"etc/engine": b"x"}
HUBS = "vllm/vllm-openai:1"


def hub(*mirrors, **more):
    """Docker Hub as it is reached through mirrors; itself it can't be reached."""
    return Repository(reference_of(HUBS), direct(daemon=Daemon(mirrors), **more))


def test_a_mirror_is_asked_first_and_gets_no_account_of_docker_hub(real, front, tmp_path):
    real.image("vllm/vllm-openai", "1", FILES)
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": ACCOUNT}}}))
    front.token = "t"
    image = fetch(hub(f"http://{front.host}", accounts=replace(direct().accounts, docker=tmp_path / "config.json")), "")
    assert image.facts.platform == "linux/arm64"
    assert not any("Basic" in headers.get("Authorization", "") for _, _, headers in front.asked)


@pytest.mark.parametrize("status", [403, 404, 429, 500])
def test_the_next_way_is_tried_when_a_mirror_fails(real, front, status):
    real.image("vllm/vllm-openai", "1", FILES)
    told = []
    with fronting(Front(odd=[on("", *[(status, {})] * 99)])) as broken:
        image = fetch(hub(f"http://{broken.host}", f"http://{front.host}/", tell=told.append), "")
        asked = len(broken.asked)
    assert image.facts.platform == "linux/arm64"
    if status != 404:  # it may have another image
        assert any(f"mirror {broken.host}" in line for line in told)
        assert asked <= TRIES  # and it isn't asked again


def test_the_registry_itself_comes_last(front):
    front.behind = ""
    with pytest.raises(RegistryTrouble) as caught:
        fetch(hub(f"http://{front.host}"), "")
    assert caught.value.host == "registry-1.docker.io" and caught.value.kind == "registry-unreachable"
    others = doors(reference_of("ghcr.io/a/b"), Daemon((f"http://{front.host}",)), False)
    assert [door.base for door in others] == ["https://ghcr.io/v2"]


def test_daemon_json_is_read_where_it_is_and_broken_ones_are_none(tmp_path):
    good, bad = tmp_path / "daemon.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"registry-mirrors": ["https://m.x/p/", 5], "insecure-registries": ["10.0.0.0/8"]}))
    bad.write_text('{"registry-mirrors": ')
    assert read_daemon((tmp_path / "none", bad, good)) == Daemon(("https://m.x/p/",), ("10.0.0.0/8",))
    assert read_daemon((bad,)) == Daemon()
    made = doors(reference_of(HUBS), read_daemon((good,)), False)
    assert [(door.base, door.mirror) for door in made] == [
        ("https://m.x/p/v2", True),
        ("https://registry-1.docker.io/v2", False),
    ]


@pytest.mark.parametrize(
    ("host", "insecure"),
    [
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000", True),
        ("10.1.2.3:5000", True),
        ("own.lan:5000", True),
        ("own.lan:5001", False),
        ("plain.lan:5000", True),
        ("11.1.2.3", False),
        ("ghcr.io", False),
        ("127.evil.example", False),
    ],
)
def test_where_http_is_allowed(host, insecure):
    daemon = Daemon((), ("10.0.0.0/8", "own.lan:5000", "plain.lan", "not/a/network"))
    assert is_insecure(host, daemon) is insecure


def test_later_is_waited_for_and_told(real, front):
    real.image("later", "1", FILES)
    front.odd.append(on("/manifests/1", (429, {"Retry-After": "7"}), (503, {})))
    slept, told = [], []
    access = direct(sleep=slept.append, tell=told.append)
    assert fetch(Repository(reference_of(f"{front.host}/later:1"), access), "").facts.platform == "linux/arm64"
    assert slept == [7.0, 1.0]
    assert told == [f"{front.host} answers HTTP 429: waiting 7 s", f"{front.host} answers HTTP 503: waiting 1 s"]


@pytest.mark.parametrize("after", ["3600", "Wed, 02 Dec 2026 00:00:00 GMT"])
def test_a_long_wait_is_told_and_not_waited_for(front, after):
    front.odd.append(on("/manifests/1", (429, {"Retry-After": after})))
    slept = []
    access = direct(sleep=slept.append, now=lambda: datetime(2026, 12, 1, 23, tzinfo=UTC).timestamp())
    with pytest.raises(RegistryTrouble, match=r"too many requests .HTTP 429., try again in 3600 s") as caught:
        fetch(Repository(reference_of(f"{front.host}/long:1"), access), "")
    assert slept == [] and caught.value.kind == "registry-busy"


def test_all_waits_of_a_command_are_bounded(front):
    front.odd.append(on("/manifests/1", *[(429, {"Retry-After": "19"})] * 99))
    slept = []
    access = direct(sleep=slept.append)
    for _ in range(5):
        with pytest.raises(RegistryTrouble, match="HTTP 429"):
            fetch(Repository(reference_of(f"{front.host}/often:1"), access), "")
    assert slept == [19.0] * 3


def test_what_docker_hub_says_is_left_is_kept(real, front):
    real.image("limited", "1", FILES)

    def limited(request):
        send = request.send_response

        def with_limits(status):
            send(status)
            request.send_header("ratelimit-limit", "100;w=21600")
            request.send_header("ratelimit-remaining", "76;w=21600")

        request.send_response = with_limits
        return False

    front.odd.append(limited)
    access = direct()
    fetch(Repository(reference_of(f"{front.host}/limited:1"), access), "")
    assert access.shared.allowances == {front.host: Allowance(100, 76, 21600)}
    assert str(access.shared.allowances[front.host]) == "76 of 100 pulls left in 6 h"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "5"}, 5),
        ({"retry-after": "Tue, 01 Dec 2026 00:00:30 GMT"}, 30),
        ({"retry-after": "Tue, 01 Dec 2020 00:00:30 GMT"}, 0),
        ({"x-retry-after": "1796083260"}, 60),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9" * 30}, None),
        ({}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers, seconds):
    assert retry_after(headers, datetime(2026, 12, 1, tzinfo=UTC).timestamp()) == seconds


@given(
    st.dictionaries(st.sampled_from(["ratelimit-limit", "ratelimit-remaining", "retry-after"]), st.text(max_size=40))
)
def test_any_header_is_survived(headers):
    assert allowance(headers) is None or allowance(headers).most >= 0
    asked = retry_after(headers, 0.0)
    assert asked is None or asked >= 0


@given(st.integers(100, 599), st.integers(1, 9))
def test_only_later_is_tried_again_and_not_for_ever(status, turn):
    wait = pause(status, {}, turn, 0.0)
    assert (wait is not None) == (status in LATER and turn < TRIES)
    assert wait is None or wait < PATIENCE
