#!/bin/sh
# A start that compiles for minutes, beside everything else: `begin` leaves it running in a session of its own, `end`
# says how it stands and stops it.
. "$(dirname "$0")/common.sh"

export XDG_STATE_HOME="$place/state-compile"
mkdir -p "$XDG_STATE_HOME"
case ${1:-} in
  begin)
    PYTHONPATH="$place/bascule:$root/src" setsid nohup nice -n 5 python3 -c 'from bascule.cli import main; main()' \
      up "$here/slow-compile.yaml" >"$place/compile.log" 2>&1 </dev/null &
    echo $! >"$place/compile.pid"
    say begun ;;
  end)
    kill -TERM "$(cat "$place/compile.pid")" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
      kill -0 "$(cat "$place/compile.pid")" 2>/dev/null || break
      sleep 1
    done
    step 60 down compile
    cp "$place/compile.log" "$OUT/compile.log"
    keep compile
    grep -E 'slow|stall|ready|verify|serving' "$place/compile.log" ;;
  *) tail -5 "$place/compile.log" ;;
esac
say done
