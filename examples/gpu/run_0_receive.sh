#!/bin/sh
# Takes in what was carried: wheels of bascule's own needs (.whl) and parts of kits (.carry/NAME/part.N). The first
# time it also installs bascule and writes the models.
. "$(dirname "$0")/common.sh"

for kit in vllm sglang; do
  mkdir -p "$place/kits/$kit"
  for part in "$carried/.carry/$kit"/part.*; do [ -f "$part" ] && mv "$part" "$place/kits/$kit/"; done
done
for kit in vllm sglang; do # wheels that a kit turned out to lack
  for wheel in "$carried/.carry/more-$kit"/*.whl; do
    [ -f "$wheel" ] && python3 -m pip install -q --no-index --no-deps --upgrade --target "$place/site-$kit" "$wheel"
  done
done
if [ ! -d "$place/bascule" ] && [ -d "$carried/.whl" ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$place/bascule" "$carried"/.whl/*.whl 2>&1 |
    grep -v WARNING
  mkdir "$place/tree" && cp -r "$root/src" "$root/models" "$root/examples" "$place/tree"
  bascule --version
  for model in "122b 122b" "122b-tower 122b --vision released" "35b 35b" "35b-tower 35b --vision released" \
    "35b-8 35b --layers 8" "qwen3 qwen3"; do
    # shellcheck disable=SC2086
    set -- $model
    name=$1; shift
    python3 "$root/models/make_dummy.py" "$place/models/$name" "$@" || exit 1
  done
  nvidia-smi --query-gpu=index,name,memory.total,driver_version,compute_cap --format=csv,noheader
  python3 -c 'import sys, torch; print(sys.version.split()[0], torch.__version__, torch.cuda.device_count())'
  for tool in nvcc ninja xz curl ip docker sshd; do command -v "$tool" || echo "no $tool"; done
  step 60 doctor --node local
fi
ls -la "$place/kits"/*
say done
