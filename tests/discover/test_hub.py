"""Facts of a model by its name, from a hub on loopback and from a cache like the one that hub clients share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.nouns import Model, Quantization
from bascule.discover.hub import FIRST, from_hub
from bascule.discover.hub_files import Hub, HubId
from bascule.errors import ModelError
from discover.hub_server import COMMIT, FakeHub, Zeros, serving
from discover.model_cases import DEEPSEEK, LLAMA, MODELOPT, header, size_of, write

INDEX = "model.safetensors.index.json"
GIB = 2**30


def shard(rows: int, tensors: int = 1) -> Zeros:
    """A file with so many tensors of `rows` times 4096 numbers of one byte."""
    head = header({f"model.layers.{number}.weight": ("F8_E4M3", [rows, 4096]) for number in range(tensors)})
    return Zeros(head, size_of(head))


def index(*names: str, total: int | None = None) -> bytes:
    return json.dumps(
        {"metadata": {"total_size": total}, "weight_map": {str(place): name for place, name in enumerate(names)}}
    ).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A model of DeepSeek's kind in two files of 1 and 2 GiB."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    files: dict[str, bytes | Zeros] = {
        "config.json": json.dumps(DEEPSEEK).encode(),
        "chat_template.jinja": b"<think>",
        "modeling_deepseek.py": b"class DeepseekV3ForCausalLM: ...",
        INDEX: index("m-1.safetensors", "m-2.safetensors", total=5),
        "m-1.safetensors": shard(2**18),
        "m-2.safetensors": shard(2**8, tensors=2**11),  # its header is longer than what is asked for first
    }
    with serving(FakeHub(files)) as served:
        yield served


def ask(hub: FakeHub, tmp_path: Path, name: str = "owner/model", *, count: bool = True, **settings) -> Model:
    return asyncio.run(from_hub(name, Hub(hub.url, tmp_path / "hub", **settings), count=count))


def fails(hub: FakeHub, tmp_path: Path, name: str = "owner/model", **settings) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(hub, tmp_path, name, **settings)
    return caught.value


def test_a_name_is_a_model_with_exact_bytes_and_parameters(hub: FakeHub, tmp_path: Path) -> None:
    assert ask(hub, tmp_path) == Model(
        "owner/model",
        ("DeepseekV3ForCausalLM",),
        "deepseek_v3",
        bytes=3 * GIB,
        thinks=True,
        bytes_exact=True,
        parameters=3 * GIB,
        quantization=Quantization("fp8", "", 8, (128, 128)),
        remote_code=("DeepseekV3ForCausalLM",),
    )
    assert hub.sent < 2_000_000
    assert all("Range" in headers for path, headers in hub.stored)


def test_everything_comes_from_the_commit_that_the_revision_was_at_first(hub: FakeHub, tmp_path: Path) -> None:
    ask(hub, tmp_path, "owner/model@refs/pr/1")
    assert hub.asked[0][0] == "/owner/model/resolve/refs%2Fpr%2F1/config.json"
    assert all(path.startswith(f"/owner/model/resolve/{COMMIT}/") for path, _ in hub.asked[1:])


def test_without_counting_the_index_is_enough(hub: FakeHub, tmp_path: Path) -> None:
    model = ask(hub, tmp_path, count=False)
    assert (model.bytes, model.bytes_exact, model.parameters, hub.stored) == (5, True, None, [])


@pytest.mark.parametrize("count", [True, False])
def test_a_model_in_one_file_needs_no_index(hub: FakeHub, tmp_path: Path, count: bool) -> None:
    hub.files = {"config.json": hub.files["config.json"], "model.safetensors": shard(4)}
    model = ask(hub, tmp_path, count=count)
    assert (model.bytes, model.parameters) == ((4 * 4096,) * 2 if count else (shard(4).size, None))
    assert model.remote_code == ()  # its auto_map leads to files that aren't there


def test_a_model_without_safetensors_is_estimated(hub: FakeHub, tmp_path: Path) -> None:
    hub.files = {"config.json": json.dumps(LLAMA).encode(), "hf_quant_config.json": json.dumps(MODELOPT).encode()}
    model = ask(hub, tmp_path)
    assert model.quantization is not None
    assert (model.quantization.algorithm, model.bytes_exact) == ("NVFP4", False)
    assert model.bytes == pytest.approx(4.26e9, rel=0.01)  # 0.5625 bytes per weight, 2 in the embeddings


def test_a_store_that_knows_no_ranges_is_left_in_time(hub: FakeHub, tmp_path: Path) -> None:
    hub.ranges = False
    assert ask(hub, tmp_path).parameters == 3 * GIB
    assert hub.sent < GIB / 10


def test_the_token_goes_to_the_hub_and_to_nobody_else(hub: FakeHub, tmp_path: Path) -> None:
    hub.token = "hf_secret"
    assert ask(hub, tmp_path, token="hf_secret").parameters == 3 * GIB
    assert all(headers["Authorization"] == "Bearer hf_secret" for _, headers in hub.asked)
    assert hub.stored
    assert not any("Authorization" in headers for _, headers in hub.stored)
    assert "hf_secret" not in repr(Hub(hub.url, tmp_path, "hf_secret"))


def test_a_gated_model_says_what_to_do(hub: FakeHub, tmp_path: Path) -> None:
    hub.token = "hf_secret"
    error = fails(hub, tmp_path, token="hf_other")
    assert (error.code, error.exit_status) == ("model-denied", 2)
    assert error.seen == "HTTP 401 GatedRepo for config.json"
    assert "HF_TOKEN" in error.advice
    assert "hf_other" not in f"{error.says}{error.seen}{error.advice}"


def test_a_model_or_revision_that_is_not_there_is_told(hub: FakeHub, tmp_path: Path) -> None:
    nobody = fails(hub, tmp_path, "owner/nobody")
    assert (nobody.code, nobody.says) == (
        "model-missing",
        f"{hub.url} has no model owner/nobody, or does not show it to this user",
    )
    revision = fails(hub, tmp_path, "owner/model@v9")
    assert (revision.code, revision.says) == ("model-missing", "owner/model has no revision v9")


def test_a_model_without_config_is_told(hub: FakeHub, tmp_path: Path) -> None:
    del hub.files["config.json"]
    error = fails(hub, tmp_path)
    assert (error.code, error.says) == ("model-broken", "owner/model has no config.json")


def test_a_file_that_only_the_index_knows_is_missing(hub: FakeHub, tmp_path: Path) -> None:
    del hub.files["m-2.safetensors"]
    error = fails(hub, tmp_path)
    assert (error.code, error.seen) == ("model-incomplete", f"by {INDEX}: m-2.safetensors")


def test_a_config_that_is_too_long_is_not_read_to_its_end(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["config.json"] = Zeros(b"{", 10 * GIB)
    assert fails(hub, tmp_path).says == "owner/model/config.json is larger than 16 MiB"
    assert hub.sent < GIB / 10


def test_who_asks_too_often_asks_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.answers = [(429, {"Retry_After": "0"}), (503, {"RateLimit": '"api";r=0;t=0'})]
    assert ask(hub, tmp_path).parameters == 3 * GIB
    assert [path for path, _ in hub.asked[:3]] == ["/owner/model/resolve/main/config.json"] * 3


@pytest.mark.parametrize(
    ("answers", "seen", "asked"),
    [
        ([(429, {"Retry_After": "0"})] * 3, "HTTP 429, 3 times", 3),
        ([(429, {"Retry_After": "3600"})], "HTTP 429, wait 3600 s", 1),
        ([(429, {"RateLimit": '"resolvers";r=0;t=300'})], "HTTP 429, wait 300 s", 1),
    ],
)
def test_a_hub_that_stays_busy_is_told(hub: FakeHub, tmp_path: Path, answers, seen: str, asked: int) -> None:
    hub.answers = list(answers)
    error = fails(hub, tmp_path)
    assert (error.code, error.seen, len(hub.asked)) == ("hub-unreachable", seen, asked)


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ((418, {}), "HTTP 418 for config.json"),
        ((302, {"Location": "/owner/model/resolve/main/config.json"}), "TooManyRedirects"),
        ((302, {"Location": "ftp://x/y"}), "UnsupportedProtocol"),
    ],
)
def test_an_answer_that_makes_no_sense_is_told(hub: FakeHub, tmp_path: Path, answer, seen: str) -> None:
    hub.answers = [answer] * 10
    error = fails(hub, tmp_path)
    assert error.code == "hub-unreachable"
    assert error.seen.startswith(seen)


def test_a_hub_that_cannot_be_reached_is_told(hub: FakeHub, tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:1", "http://[bad", "nonsense"):
        hub.url = url
        error = fails(hub, tmp_path)
        assert (error.code, error.says) == ("hub-unreachable", f"{url} could not be asked for owner/model")


def test_the_whole_may_not_take_longer_than_its_time(hub: FakeHub, tmp_path: Path) -> None:
    error = fails(hub, tmp_path, within=0)
    assert (error.code, error.seen) == ("hub-unreachable", "TimeoutError: ")


@pytest.mark.parametrize(
    "name", ["", "a b/c", "/etc", "../x", "a/b/c", "a--b/c", "a/b@", "a/b@../..", "a/b@x y", "a/b\n", "a/..b", "ä/b"]
)
def test_what_is_no_name_is_told(name: str) -> None:
    with pytest.raises(ModelError, match="is no name of a model on a hub"):
        HubId.parse(name)


def test_a_name_has_a_revision_and_may_lack_an_owner() -> None:
    assert HubId.parse("Qwen/Qwen3.5-122B-A10B-FP8") == HubId("Qwen/Qwen3.5-122B-A10B-FP8", "main")
    assert HubId.parse("gpt2@refs/pr/3") == HubId("gpt2", "refs/pr/3")


def snapshot(cache: Path, files: dict[str, bytes]) -> Path:
    """A cached snapshot at `main`: links to blobs."""
    folder = cache / "models--owner--model"
    place = folder / "snapshots" / COMMIT
    for path in (place, folder / "blobs", folder / "refs"):
        path.mkdir(parents=True, exist_ok=True)
    (folder / "refs/main").write_text(COMMIT)
    for number, (name, content) in enumerate(files.items()):
        (folder / f"blobs/{number}").write_bytes(content)
        (place / name).symlink_to(f"../../blobs/{number}")
    return place


def cached(tmp_path: Path) -> Path:
    """A complete snapshot of one file of weights."""
    write(tmp_path / "w", {"model.a.weight": ("BF16", [8, 4])})
    files = {"config.json": json.dumps(LLAMA).encode(), "model.safetensors": (tmp_path / "w").read_bytes()}
    return snapshot(tmp_path / "hub", files)


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("name", ["owner/model", f"owner/model@{COMMIT}"])
def test_a_complete_snapshot_answers_without_the_network(
    hub: FakeHub, tmp_path: Path, offline: bool, name: str
) -> None:
    cached(tmp_path)
    model = ask(hub, tmp_path, name, offline=offline)
    assert (model.path, model.model_type, model.bytes, model.parameters) == (name, "llama", 64, 32)
    assert hub.asked == []


def test_a_snapshot_with_a_link_to_nowhere_is_told_offline_and_asked_for_online(hub: FakeHub, tmp_path: Path) -> None:
    place = cached(tmp_path)
    (tmp_path / "hub/models--owner--model/blobs/1").unlink()
    error = fails(hub, tmp_path, offline=True)
    assert (error.code, error.says) == ("model-incomplete", f"{place}: model.safetensors is a link to nowhere")
    assert hub.asked == []
    assert ask(hub, tmp_path).model_type == "deepseek_v3"


def test_a_snapshot_without_weights_is_good_enough_offline_only(hub: FakeHub, tmp_path: Path) -> None:
    snapshot(tmp_path / "hub", {"config.json": json.dumps(LLAMA).encode()})
    assert not ask(hub, tmp_path, offline=True).bytes_exact
    assert ask(hub, tmp_path).bytes == 3 * GIB


@pytest.mark.parametrize("ref", [None, "", "../../../../etc", "f" * 40])
def test_offline_without_a_snapshot_is_told(hub: FakeHub, tmp_path: Path, ref: str | None) -> None:
    cached(tmp_path)
    refs = tmp_path / "hub/models--owner--model/refs/main"
    refs.unlink()
    if ref is not None:
        refs.write_text(ref)
    error = fails(hub, tmp_path, offline=True)
    assert (error.code, error.seen) == ("model-missing", str(tmp_path / "hub"))
    assert hub.asked == []


def test_the_environment_says_where_the_hub_is_and_who_asks(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_file\n")
    home = Hub.from_environment({"HF_HOME": str(tmp_path)})
    assert home == Hub(home.endpoint, tmp_path / "hub", "hf_file")
    assert home.endpoint.startswith("https://")
    env = {"HF_HOME": str(tmp_path), "HF_TOKEN": "hf_env", "HF_ENDPOINT": "http://mirror/", "HF_HUB_OFFLINE": "1"}
    assert Hub.from_environment(env) == Hub("http://mirror", tmp_path / "hub", "hf_env", offline=True)
    assert Hub.from_environment(env | {"HF_HUB_CACHE": "/c"}).cache == Path("/c")
    assert Hub.from_environment({"HOME": str(tmp_path)}).cache == tmp_path / ".cache/huggingface/hub"
    assert Hub.from_environment(env | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token == ""
    assert replace(home, token="") == Hub.from_environment(
        {"HF_HOME": str(tmp_path), "HF_TOKEN_PATH": str(tmp_path / "none")}
    )


@pytest.mark.parametrize("token", ["two words", "ümlaut", "line\nbreak"])
def test_a_token_that_cannot_be_sent_is_told(token: str) -> None:
    with pytest.raises(ModelError, match="HF_TOKEN holds no token") as caught:
        Hub.from_environment({"HF_TOKEN": token})
    assert token not in caught.value.seen


def test_headers_longer_than_the_first_request_are_in_the_tests() -> None:
    assert len(shard(2**8, tensors=2**11).first) > FIRST > len(shard(2**18).first)
