"""Asks a running service one question and prints reasoning and answer: ask.py SERVICE QUESTION."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path


def main(service: str, question: str) -> None:
    """Find the service by `bascule status`, ask over plain HTTP."""
    bascule = Path(sys.executable).with_name("bascule")
    told = subprocess.run([bascule, "status", service, "--json"], capture_output=True, check=True)
    where = json.loads(told.stdout)[0]
    body = {"model": where["model"], "messages": [{"role": "user", "content": question}], "temperature": 0}
    request = urllib.request.Request(
        f"{where['url']}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        message = json.load(response)["choices"][0]["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    print(f"question   {question}\nreasoning  {' '.join(reasoning.split())}\nanswer     {message['content'].strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
