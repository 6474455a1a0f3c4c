#!/bin/sh
# The main job on this machine: two nodes on loopback addresses, four candidates, one answer; stops it all at the end.
# KEEP=1 leaves the service running.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
bascule=$here/.venv/bin/bascule

leave() {
  if [ "${KEEP:-}" = 1 ]; then
    echo "still serving; $bascule status · logs -f adder · down adder"
  else
    "$bascule" down adder
  fi
}

"$bascule" up "$here/examples/adder-two-nodes.yaml"
status=$?
if [ "$status" -eq 0 ]; then
  echo
  "$here/.venv/bin/python" "$here/examples/ask.py" adder "What is 17 + 25?"
fi
if [ "$status" -ne 130 ]; then
  echo
  echo "bascule why:"
  "$bascule" why
  echo
  leave
fi
exit "$status"
