#!/bin/sh
# SGLang over two hosts made of namespaces: the hang and its cure, then the same without the mistake, then a
# Qwen3.5-MoE. STEPS: hang plain qwen3.5.
. "$(dirname "$0")/common.sh"

[ -d "$place/site-sglang" ] || unpack sglang
python3 "$here/namespaces.py" up two || exit 1
for name in ${STEPS:-hang plain}; do
  step "${WITHIN:-330}" up "$here/sglang-$name.yaml"
  step 60 down "$(sed -n 's/^service: //p' "$here/sglang-$name.yaml")"
  keep "sglang-$name"
done
nvidia-smi --query-gpu=memory.used --format=csv,noheader
say done
