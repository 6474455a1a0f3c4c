#!/bin/sh
# One node, one GPU: what was computed against what the engine says, and the speed as a share of the bound.
. "$(dirname "$0")/common.sh"

[ -d "$place/site-vllm" ] || unpack vllm
python3 - <<'P'
import time, torch
one = torch.empty(8 << 30, dtype=torch.uint8, device="cuda"); other = torch.empty_like(one)
for _ in range(3): other.copy_(one)
torch.cuda.synchronize(); t = time.perf_counter()
for _ in range(10): other.copy_(one)
torch.cuda.synchronize(); s = (time.perf_counter() - t) / 10
print(f"copy: {2 * one.numel() / s / 1e12:.2f} TB/s read and written")
P
step 60 fit "$place/models/35b" --node name=a,host=local,gpus=0 --context 8192 --json
step 60 plan "$here/one-h200.yaml"
step "${WITHIN:-420}" up "$here/one-h200.yaml"
nvidia-smi --query-gpu=memory.used,utilization.gpu,power.draw --format=csv,noheader
grep -hE 'Model loading took|Available KV cache|KV cache size|graph memory|Graph capturing|init engine|took [0-9.]+ s' \
  "$XDG_STATE_HOME"/bascule/evidence/*/*/rank0.log | cut -c 1-200
step 30 status --json
step 60 down single
keep one
say done
