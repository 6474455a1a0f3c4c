# Ranks as plain processes on a node: started, seen, and stopped by these POSIX functions, sent over stdin.
# A rank is a folder ROOT/SERVICE.GENERATION.rRANK with: label (key=value), run (the script that is its process
# group's leader), log, pid ("PID STARTTIME BOOT_ID"), exit (status, once it ended by itself).
set -u

boot_id() { cat /proc/sys/kernel/random/boot_id; }

# Field 22 of /proc/PID/stat: when the process began, in ticks since boot. With the pid it names a process for good.
start_time() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# leader DIR: prints the pid of the folder's leader if that very process lives.
leader() {
  [ -r "$1/pid" ] || return 1
  read -r pid began boot <"$1/pid" || return 1
  [ "$boot" = "$(boot_id)" ] && [ "$(start_time "$pid")" = "$began" ] || return 1
  state=$(sed 's/^.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 1)
  [ -n "$state" ] && [ "$state" != Z ] && echo "$pid"
}

# session DIR: the number of the rank's session, unless another process has that number by now.
session() {
  [ -r "$1/pid" ] || return 0
  read -r pid began boot <"$1/pid"
  now=$(start_time "$pid")
  [ "$boot" = "$(boot_id)" ] && { [ -z "$now" ] || [ "$now" = "$began" ]; } && echo "$pid"
  return 0
}

# members DIR...: the pids of all processes of these ranks: their sessions, and whoever carries their mark in the
# environment. One look over /proc for all of them.
members() {
  sessions=" "
  for dir in "$@"; do sessions="$sessions$(session "$dir") "; done
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v sessions="$sessions" '
    { id = $1; sub(/^.*\) /, ""); if ($1 != "Z" && index(sessions, " " $4 " ")) print id }'
  count=$#
  for dir in "$@"; do set -- "$@" -e "BASCULE_RANK=$dir"; done
  shift "$count"
  grep -lzxF "$@" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
}

# describe DIR: one block about a rank; "alive" means that any process of it is left.
describe() {
  echo "=== $(basename "$1")"
  cat "$1/label" 2>/dev/null
  if found=$(leader "$1"); then echo "alive=1"; echo "pid=$found"
  elif [ -n "$(members "$1")" ]; then echo "alive=1"; echo "leaderless=1"
  else echo "alive=0"; fi
  [ -r "$1/exit" ] && echo "exit=$(cat "$1/exit")"
  return 0
}

# list ROOT SERVICE: every rank of a service, or of all services when SERVICE is empty.
list() {
  if [ -n "${2:-}" ]; then set -- "$1/$2".*.r*; else set -- "$1"/*.*.r*; fi
  for dir in "$@"; do [ -d "$dir" ] && describe "$dir"; done
  return 0
}

# observe ROOT NAME OFFSET [NAME OFFSET]...: state of ranks, and what their logs gained, at most 256 KiB each; OFFSET may
# be `recent`: the last 64 KiB. Each block begins with a line NAME ALIVE EXIT BYTES OFFSET.
observe() {
  root=$1; shift
  while [ $# -ge 2 ]; do
    dir=$root/$1; offset=$2; shift 2
    size=$(wc -c <"$dir/log" 2>/dev/null || echo 0)
    [ "$offset" != recent ] || { offset=$((size - 65536)); [ "$offset" -gt 0 ] || offset=0; }
    if found=$(leader "$dir"); then alive=1; else alive=0; fi
    gained=$((size - offset)); [ "$gained" -gt 262144 ] && gained=262144; [ "$gained" -lt 0 ] && gained=0
    code=$(cat "$dir/exit" 2>/dev/null) # empty where the disk had no room for it
    echo "=== $(basename "$dir") $alive ${code:--} $gained $offset"
    [ "$gained" -gt 0 ] && tail -c "+$((offset + 1))" "$dir/log" | head -c "$gained"
    echo
  done
  return 0
}

# stop ROOT GRACE NAME...: TERM, then KILL after GRACE seconds, until nothing of the ranks is left.
stop() {
  root=$1; grace=$2; shift 2
  [ $# -gt 0 ] || return 0
  count=$#
  for name in "$@"; do set -- "$@" "$root/$name"; done
  shift "$count"
  signal_all TERM "$@"
  end=$(($(date +%s) + grace))
  while [ -n "$(members "$@")" ] && [ "$(date +%s)" -lt "$end" ]; do sleep 0.2; done
  end=$(($(date +%s) + 10))
  while [ -n "$(members "$@")" ] && [ "$(date +%s)" -lt "$end" ]; do signal_all KILL "$@"; sleep 0.2; done
  left=$(members "$@")
  [ -z "$left" ] || { echo "still there: $left" >&2; return 1; }
}

signal_all() {
  sent=$1; shift
  for process in $(members "$@"); do kill "-$sent" "$process" 2>/dev/null; done
  return 0
}

# remove ROOT NAME...: the folders of ranks that have ended.
remove() {
  root=$1; shift
  for name in "$@"; do
    case "$name" in */* | "" | .*) continue ;; esac
    [ -n "$(members "$root/$name")" ] || rm -rf "${root:?}/$name"
  done
}

"$@"
