#!/bin/sh
# Where the time of a token goes: the start of one-h200.yaml again, with PyTorch's profiler.
. "$(dirname "$0")/common.sh"

[ -d "$place/site-vllm" ] || unpack vllm
rm -rf "$place/profile"
step "${WITHIN:-420}" up "$here/profile-one-h200.yaml"
where=$(bascule status profiled --json | python3 -c 'import json, sys; s = json.load(sys.stdin)[0]; print(s["url"], s["model"])')
# shellcheck disable=SC2086
timeout 240 python3 "$here/token_time.py" $where "$place/profile" | tee "$OUT/token_time.json"
step 60 down profiled
ls -la "$place/profile"
keep profile
say done
