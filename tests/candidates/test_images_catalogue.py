"""The catalogue of images, what is chosen from it, and by which words an engine shows."""

import tomllib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.discover.images import (
    NEWEST,
    chosen,
    family_of,
    order,
    publisher_of,
    read_images,
    recognised,
    release_in,
    release_of,
    searches,
    shown,
)
from bascule.engines.catalogue import ENGINES
from bascule.errors import RecipeError
from bascule.registry.oci import reference_of

IMAGES = read_images()
RAW = tomllib.loads(resources.files("bascule.discover").joinpath("data/images.toml").read_text())


def known(name):
    return next(row for row in IMAGES.known if row.name == name)


def test_every_row_says_where_it_is_from_and_when():
    for row in (*RAW["image"], *RAW["publisher"]):
        assert len(row["source"]) > 8 and row["date"].year >= 2026, row
    assert len(IMAGES.known) >= 10
    for row in IMAGES.known:
        reference = reference_of(row.name)
        assert reference.familiar == row.name and (row.tags or row.releases), row
        assert row.engine in IMAGES.words and row.accelerator in ("cuda", "rocm", "cpu")
    assert {"vllm", "sglang", "llamacpp"} <= {row.engine for row in IMAGES.known} & set(ENGINES)


def test_some_are_of_the_projects_some_of_vendors_some_of_anybody():
    kinds = {row.name: publisher_of(reference_of(row.name), IMAGES).kind for row in IMAGES.known}
    assert (kinds["vllm/vllm-openai"], kinds["nvcr.io/nvidia/vllm"]) == ("project", "vendor")
    assert kinds["hellohal2064/vllm-qwen3.5-gb10"] == kinds["scitrera/dgx-spark-sglang"] == "community"
    own = publisher_of(reference_of("my.host:5000/team/vllm:1"), IMAGES)
    assert (own.kind, own.name) == ("own", "my.host:5000")
    assert publisher_of(reference_of("docker.io/vllm2/vllm-openai"), IMAGES).kind == "community"


@pytest.mark.parametrize(
    ("name", "tags", "wanted"),
    [
        ("vllm/vllm-openai", ["v0.9.2", "latest", "v0.17.1", "v0.17.0", "nightly"], ["latest", "v0.17.1", "v0.17.0"]),
        ("vllm/vllm-openai", ["v0.17.1.post1", "v0.17.1", "v0.17.1rc1"], ["v0.17.1.post1", "v0.17.1"]),
        ("nvcr.io/nvidia/vllm", ["25.12-py3", "26.05-py3", "26.05-py3-sig", "26.11-py3"], ["26.11-py3", "26.05-py3"]),
        ("lmsysorg/sglang", ["v0.5.9-cu130", "v0.5.10", "spark", "dev"], ["spark", "v0.5.10", "v0.5.9-cu130"]),
        ("ghcr.io/ggml-org/llama.cpp", ["server", "server-cuda", "b1"], ["server-cuda"]),
        ("vllm/vllm-openai", [], []),
    ],
)
def test_which_tags_are_looked_at(name, tags, wanted):
    assert list(chosen(known(name), tags)) == wanted


@given(st.lists(st.text(alphabet="v0123456789.-abc", max_size=12), max_size=30))
def test_never_more_tags_than_are_worth_it(tags):
    row = known("vllm/vllm-openai")
    found = chosen(row, tags)
    assert len(found) <= len(row.tags) + NEWEST and set(found) <= set(tags)


def test_releases_in_tags_variables_and_history():
    assert release_of(known("vllm/vllm-openai"), "v0.17.1") == "0.17.1"
    assert release_of(known("nvcr.io/nvidia/vllm"), "26.05-py3") == ""  # a month, not a release of vLLM
    assert release_of(None, "v1") == ""
    assert (
        release_in("vllm", {}, ["RUN pip install torch==2.9.0", "RUN uv pip install vllm[audio]==0.17.1 x"]) == "0.17.1"
    )
    assert release_in("vllm", {"VLLM_VERSION": "v0.16.0"}, ["RUN pip install vllm==0.17.1"]) == "0.16.0"
    assert release_in("vllm", {"VLLM_VERSION": "main"}, ["RUN pip install my-vllm-x"]) == ""
    assert order("v0.10.0") > order("v0.9.9")


@pytest.mark.parametrize(
    ("names", "words", "env", "labels", "engine"),
    [
        ((), ("vllm", "serve"), {}, {}, "vllm"),
        ((), ("python3", "-m", "sglang.launch_server"), {}, {}, "sglang"),
        ((), ("/opt/nvidia/nvidia_entrypoint.sh",), {"VLLM_USAGE_SOURCE": "x"}, {}, "vllm"),
        ((), ("/app/llama-server",), {}, {}, "llamacpp"),
        ((), (), {"PATH": "/opt/vllm/bin:/bin"}, {}, "vllm"),
        ((), (), {}, {"org.opencontainers.image.source": "https://github.com/sgl-project/sglang"}, "sglang"),
        (("vllm-node:latest",), ("bash",), {}, {}, "vllm"),
        (("ubuntu:24.04",), ("bash",), {"PATH": "/bin"}, {"maintainer": "me"}, ""),
    ],
)
def test_how_an_engine_shows(names, words, env, labels, engine):
    assert recognised(shown(names, words, env, labels), IMAGES)[0] == engine


@pytest.mark.parametrize(
    ("model_type", "family"),
    [
        ("qwen3_5_moe_text", "qwen3.5"),
        ("qwen3_moe", "qwen3"),
        ("llama", "llama"),
        ("glm4_moe", "glm4"),
        ("deepseek_v3", "deepseek"),
        ("", ""),
    ],
)
def test_a_model_s_family_as_people_write_it(model_type, family):
    assert family_of(model_type) == family


def test_what_a_hub_is_searched_for():
    assert searches(IMAGES, ["vllm", "lmdeploy"], "sm_121", "qwen3.5") == (
        "vllm gb10",
        "vllm dgx-spark",
        "vllm qwen3.5",
    )
    assert searches(IMAGES, ["vllm"], "sm_90", "") == ()


@pytest.mark.parametrize(
    "text", ["[[image]]\nname = 5", "[[image", '[[publisher]]\nid="x"\nname="y"\nkind="king"', "image = 5"]
)
def test_a_broken_catalogue_is_told(tmp_path, text):
    (tmp_path / "images.toml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_images(tmp_path / "images.toml")
    assert caught.value.code == "images-catalogue"
    with pytest.raises(RecipeError):
        read_images(tmp_path / "nowhere.toml")
