"""What goes into the journal and --json: nothing is lost, and no secret is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core.nouns import Artefact, Evidence, Fate, Finding, RankPlan, Setting, Step
from bascule.core.plain import is_secret, setting_from_plain, to_plain

SECRET = "hf_s3cr3t"
VENV = Artefact("venv", "/v")
names = st.text("abcdefghij-", min_size=1)
settings = st.builds(Setting, st.sampled_from(["env", "flag"]), names, st.none() | st.text(), st.none() | names)


@given(settings)
def test_a_setting_comes_back_from_the_label_of_a_rank(setting: Setting) -> None:
    assert setting_from_plain(json.loads(json.dumps(to_plain(setting)))) == setting


@pytest.mark.parametrize("raw", [{}, {"kind": "env"}, {"kind": "env", "name": "X", "value": "1", "other": 2}])
def test_a_label_that_holds_no_setting_is_told_apart(raw: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        setting_from_plain(raw)


def test_findings_become_json() -> None:
    seen = Evidence("a", "log", datetime(2026, 11, 30, 12, 0, tzinfo=UTC), "text")
    plain = to_plain(Finding(Step.WATCH, Fate.ADJUST, "c", "says", (seen,), Setting("env", "X", "1", "a")))
    assert json.loads(json.dumps(plain)) == {
        "step": "watch",
        "fate": "adjust",
        "code": "c",
        "says": "says",
        "evidence": [{"node": "a", "source": "log", "seen_at": "2026-11-30T12:00:00.000+00:00", "excerpt": "text"}],
        "change": {"kind": "env", "name": "X", "value": "1", "node": "a"},
        "advice": "",
        "scope": "artefact",
        "release": "",
    }


SECRETS = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "NGC_APIKEY", "DB_PASSWORD"]
SECRET_FLAGS = ["--api-key", "--hf-token", "--admin-api-key"]
HARMLESS = ["NCCL_DEBUG", "VLLM_HOST_IP", "TOKENIZERS_PARALLELISM", "SGLANG_MAX_PREFILL_TOKENS"]
HARMLESS_FLAGS = ["--max-num-batched-tokens", "--tokenizer", "--tokenizer-mode", "--ssl-keyfile"]


@pytest.mark.parametrize("name", SECRETS + SECRET_FLAGS)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", HARMLESS + HARMLESS_FLAGS)
def test_what_is_no_secret_stays_readable(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize("name", SECRETS)
def test_secret_variables_are_masked_wherever_they_stand(name: str) -> None:
    setting = Setting("env", name, SECRET)
    rank = RankPlan(0, "a", ("python",), {name: SECRET, "NCCL_DEBUG": "INFO"}, VENV)
    told = json.dumps(to_plain({"setting": setting, "rank": rank, name: SECRET}))
    assert SECRET not in told
    assert "INFO" in told


@pytest.mark.parametrize("name", SECRET_FLAGS)
def test_secret_flags_are_masked_in_settings_and_in_command_lines(name: str) -> None:
    setting = Setting("flag", name, SECRET)
    rank = RankPlan(0, "a", ("python", "serve", name, SECRET, f"{name}={SECRET}", "--port", "8000"), {}, VENV)
    told = json.dumps(to_plain([setting, rank]))
    assert SECRET not in told
    assert "8000" in told
