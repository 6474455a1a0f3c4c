"""Logins: the dances of Docker Hub, GHCR, NGC and plain registries, accounts from docker and podman, nothing shown."""

import json
import os
import stat
from dataclasses import replace

import pytest

from bascule.registry.accounts import Account, Accounts
from bascule.registry.image import fetch
from bascule.registry.oci import reference_of
from bascule.registry.repository import Repository
from bascule.registry.troubles import RegistryTrouble
from registry.registry_parts import ACCOUNT, PASSWORD, SECRET, direct

FILES = {"etc/engine": b"x"}
NGC = "JG9hdXRodG9rZW46a2V5"  # $oauthtoken:key


@pytest.fixture
def private(real, front):
    real.image("private", "1", FILES)
    front.token = "bearer-nobody-may-see"
    return front


def read(front, access):
    return fetch(Repository(reference_of(f"{front.host}/private:1"), access), "linux/arm64")


def docker(tmp_path, **content):
    (tmp_path / "config.json").write_text(json.dumps(content))
    return direct(accounts=Accounts(tmp_path / "config.json"))


def helper(folder, name, answers):
    """A credential helper: answers by what it is asked on standard input; else it knows nothing."""
    folder.mkdir(exist_ok=True)
    path = folder / f"docker-credential-{name}"
    cases = "".join(f"  '{asked}') echo '{json.dumps(answer)}' ;;\n" for asked, answer in answers.items())
    path.write_text(
        f'#!/bin/sh\n[ "$1" = get ] || exit 3\ncase "$(cat)" in\n{cases}'
        '  *) echo "credentials not found in native keychain"; exit 1 ;;\nesac\n'
    )
    path.chmod(stat.S_IRWXU)
    return path


@pytest.fixture
def programs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def test_anybody_gets_a_token_for_this_repository_alone(private):
    assert read(private, direct()).facts.platform == "linux/arm64"
    tokens = [path for path in private.paths() if path.startswith("/token")]
    assert tokens == ["/token?service=here&scope=repository%3Aprivate%3Apull"]  # once for all that follows


@pytest.mark.parametrize("key", ["auth", "identitytoken", "registrytoken"])
def test_the_account_in_docker_s_file(private, tmp_path, key):
    private.accounts = (f"Basic {ACCOUNT}",)
    row = {"auth": ACCOUNT, "identitytoken": SECRET, "registrytoken": private.token}
    access = docker(tmp_path, auths={private.host: {key: row[key]}})
    assert read(private, access).facts.platform == "linux/arm64"
    posted = [form["refresh_token"] for form in private.forms]
    assert posted == ([[SECRET]] if key == "identitytoken" else [])
    assert all(SECRET not in path and PASSWORD not in path for path in private.paths())


def test_a_registry_that_wants_the_account_itself(private, tmp_path):
    private.basic = True
    access = docker(tmp_path, auths={f"https://{private.host}": {"auth": ACCOUNT}})
    assert read(private, access).facts.platform == "linux/arm64"
    with pytest.raises(RegistryTrouble, match="wants a login"):
        read(private, direct())


def test_ngc_takes_its_key_as_the_password_of_oauthtoken(private, tmp_path):
    private.accounts = (f"Basic {NGC}",)
    assert read(private, docker(tmp_path, auths={private.host: {"auth": NGC}})).facts.platform == "linux/arm64"


@pytest.mark.parametrize("place", ["credsStore", "credHelpers"])
def test_a_helper_program_is_asked(private, tmp_path, programs, place):
    private.accounts = (f"Basic {ACCOUNT}",)
    helper(programs, "keys", {private.host: {"ServerURL": private.host, "Username": "me", "Secret": PASSWORD}})
    found = {"credsStore": "keys"} if place == "credsStore" else {"credHelpers": {private.host: "keys"}}
    assert read(private, docker(tmp_path, **found)).facts.platform == "linux/arm64"


def test_a_helper_may_give_an_identity_token(private, tmp_path, programs):
    private.accounts = ()
    helper(programs, "keys", {private.host: {"ServerURL": "x", "Username": "<token>", "Secret": SECRET}})
    assert read(private, docker(tmp_path, credsStore="keys")).facts.platform == "linux/arm64"
    assert private.forms[0]["grant_type"] == ["refresh_token"] and private.forms[0]["client_id"] == ["bascule"]


def test_docker_hub_s_account_is_kept_under_another_name(tmp_path, programs):
    helper(programs, "keys", {"https://index.docker.io/v1/": {"Username": "me", "Secret": PASSWORD}})
    (tmp_path / "config.json").write_text('{"credsStore": "keys"}')
    accounts = Accounts(tmp_path / "config.json")
    assert accounts.of(reference_of("vllm/vllm-openai").accounts) == (Account("me", PASSWORD), "")
    assert accounts.of(reference_of("ghcr.io/a/b").accounts) == (None, "")


@pytest.mark.parametrize(
    ("config", "script", "why"),
    [
        ({"credsStore": "nowhere"}, "", "docker-credential-nowhere is not installed"),
        ({"credsStore": "../evil"}, "", "a name that can't be"),
        ({"credsStore": "keys"}, "echo secret-of-the-helper >&2; exit 7", "docker-credential-keys ended with status 7"),
        ({"credsStore": "keys"}, "echo secret-of-the-helper", "gave an answer that is no account"),
        ({"credsStore": "keys"}, "echo '{\"Username\": 5}'", "gave an answer that is no account"),
    ],
)
def test_a_helper_that_fails_is_told_where_a_login_is_missing(private, tmp_path, programs, config, script, why):
    private.basic = True
    if script:
        helper(programs, "keys", {}).write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(RegistryTrouble, match="wants a login") as caught:
        read(private, docker(tmp_path, **config))
    assert why in caught.value.why and "secret-of-the-helper" not in caught.value.why
    assert caught.value.advice == f"docker login {private.host}"


def test_an_account_that_is_refused_gives_way_to_nobody_s(private, tmp_path):
    told = []
    access = replace(docker(tmp_path, auths={private.host: {"auth": ACCOUNT}}), tell=told.append)
    assert read(private, access).facts.platform == "linux/arm64"
    assert told == [f"{private.host} refuses the account of docker login; asking without it"]
    private.accounts = ()
    with pytest.raises(RegistryTrouble, match=r"its login answers HTTP 401 \(docker login\)"):
        read(private, docker(tmp_path, auths={private.host: {"auth": ACCOUNT}}))


def test_podman_s_file_may_have_an_account_for_a_part_of_a_registry(tmp_path):
    (tmp_path / "auth.json").write_text(
        json.dumps(
            {"auths": {"h.x/team": {"auth": ACCOUNT}, "h.x": {"auth": NGC}, "docker.io/vllm": {"auth": ACCOUNT}}}
        )
    )
    accounts = Accounts(tmp_path / "none.json", (tmp_path / "auth.json",))
    names = reference_of("h.x/team/vllm").accounts
    assert accounts.of(names, "team/vllm")[0] == Account("me", PASSWORD)
    assert accounts.of(names, "other/vllm")[0] == Account("$oauthtoken", "key")
    assert accounts.of(reference_of("vllm/vllm-openai").accounts, "vllm/vllm-openai")[0] == Account("me", PASSWORD)


def test_where_accounts_are_looked_for(tmp_path):
    usual = Accounts.from_environment({"HOME": "/h", "XDG_RUNTIME_DIR": "/r"})
    assert str(usual.docker) == "/h/.docker/config.json"
    assert [str(path) for path in usual.podman] == ["/r/containers/auth.json", "/h/.config/containers/auth.json"]
    named = Accounts.from_environment({"HOME": "/h", "DOCKER_CONFIG": "/d", "REGISTRY_AUTH_FILE": "/a.json"})
    assert (str(named.docker), [str(path) for path in named.podman]) == ("/d/config.json", ["/a.json"])


def test_nothing_that_is_printed_has_a_secret(private, tmp_path):
    account = Account("me", PASSWORD)
    assert PASSWORD not in repr(account) and "me" not in repr(account)
    access = docker(tmp_path, auths={private.host: {"auth": ACCOUNT}})
    private.accounts = (f"Basic {ACCOUNT}",)
    repository = Repository(reference_of(f"{private.host}/private:1"), access)
    fetch(repository, "linux/arm64")
    shown = repr(access) + repr(access.shared) + repr(vars(repository))
    assert not any(word in shown for word in (PASSWORD, ACCOUNT, private.token))
