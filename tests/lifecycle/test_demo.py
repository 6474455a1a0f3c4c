"""The main job: the demo's own recipe, over two nodes with vLLM's tensor parallel, past three things that go wrong."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest

from lifecycle.desk import ENGINES, ROOT

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_the_demo_recipe_pivots_repairs_and_serves(desk):
    recipe = ROOT / "examples/adder-two-nodes.yaml"
    told = desk.run("up", recipe, "--port", str(desk.port), within=400)
    assert told.returncode == 0, told.stderr

    probed = {e["data"]["candidate"]["name"]: e["data"]["finding"] for e in desk.events("probed")}
    refused = probed["vllm-0.14"]
    assert (refused["fate"], refused["code"]) == ("hopeless", "architecture-unknown")
    assert re.fullmatch(r"vllm/model_executor/models/registry\.py:\d+", refused["evidence"][0]["source"])

    found = [(e["data"]["candidate"]["name"], e["data"]["finding"]) for e in desk.events("finding")]
    failures = [(name, finding["code"], finding["change"]) for name, finding in found if finding["fate"] != "ok"]
    change = {"kind": "env", "name": "GLOO_SOCKET_IFNAME", "value": "lo", "node": "b"}
    assert failures == [("llamacpp", "tags-leaked", None), ("vllm-0.32", "interface-missing", change)]

    status = desk.status()
    assert status["state"] == "serving" and status["url"] == f"http://127.0.0.1:{desk.port}/v1"
    assert [(rank["node"], rank["alive"]) for rank in status["ranks"]] == [("a", True), ("b", True)]
    answers = [ask(status["url"], "adder", a, b) for a, b in ((17, 25), (99, 99), (0, 7), (58, 64))]
    assert [content for content, _ in answers] == ["42", "198", "7", "122"]
    assert all("So " in reasoning and "</think>" not in reasoning for _, reasoning in answers)

    assert desk.run("down").returncode == 0 and not desk.ours()
    assert (ENGINES / "adder.gguf").exists()


def ask(url: str, model: str, a: int, b: int) -> tuple[str, str]:
    """Content and reasoning, asked as any client would."""
    body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": f"What is {a} + {b}?"}]}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        message = json.load(response)["choices"][0]["message"]
    return message["content"].strip(), message["reasoning"]
