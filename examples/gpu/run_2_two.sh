#!/bin/sh
# Two nodes that share one GPU: a candidate that can't, one that serves, and the drills. RECIPE: two-nodes-one-h200.yaml
# or 122b-one-h200.yaml; DRILL: seconds for the drills, 0 for none.
. "$(dirname "$0")/common.sh"

recipe=${RECIPE:-two-nodes-one-h200.yaml}
service=$(sed -n 's/^service: //p' "$here/$recipe")
step "${WITHIN:-400}" up "$here/$recipe"
keep two
nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
if [ "${DRILL:-200}" -gt 0 ]; then
  PYTHONPATH="$place/bascule:$root/src" timeout -s INT -k 10 "${DRILL:-200}" python3 "$here/drill.py" "$service" \
    --patience "${PATIENCE:-90}" -- python3 -c 'from bascule.cli import main; main()' | tee "$OUT/drill.jsonl"
fi
step 60 down "$service"
nvidia-smi --query-gpu=memory.used --format=csv,noheader
keep two
say done
