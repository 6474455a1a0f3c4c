# Ranks as containers on a node, for docker and podman: POSIX functions, sent over stdin. DOCKER is the command's words.
set -u

# list DOCKER SERVICE: the JSON of every container of a service, or of all services when SERVICE is empty.
list() {
  if [ -n "$2" ]; then filter="label=bascule.service=$2"; else filter="label=bascule.service"; fi
  # shellcheck disable=SC2086
  ids=$($1 ps --all --quiet --no-trunc --filter "$filter") || return 1
  if [ -n "$ids" ]; then $1 inspect $ids; else echo "[]"; fi
}

# observe DOCKER NAME CURSOR [NAME CURSOR]...: state, and what the log gained. CURSOR is a second and the number of its
# lines and later ones that are known ("-": none is; "recent": the last lines are wanted). What has no time before it is
# not of the log: podman puts its warnings there.
observe() {
  docker=$1; shift
  while [ $# -ge 2 ]; do
    name=$1; cursor=$2; shift 2
    state=$($docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}' "bascule.$name" 2>&1)
    case "$state" in
      *"o such "*) state="missing - false" ;;
      *" "*" true" | *" "*" false") ;;
      *) echo "$state" >&2; continue ;; # the daemon doesn't answer: nothing is known of this rank now
    esac
    since= known=0
    case "$cursor" in
      -) ;;
      recent) since="--tail 300" ;;
      *) since="--since ${cursor%,*}" known=${cursor##*,} ;;
    esac
    log=$($docker logs --timestamps $since "bascule.$name" 2>&1 | LC_ALL=C sed -n '/^[0-9]*-[0-9]*-[0-9]*T/p' |
      tail -n "+$((known + 1))" | head -c 262144; echo x)
    log=${log%x}
    echo "=== $name $state $cursor $(printf %s "$log" | wc -c)"
    printf '%s\n' "$log"
  done
}

# stop DOCKER GRACE NAME...: TERM, then KILL after GRACE seconds; all at once.
stop() {
  docker=$1; grace=$2; shift 2
  for name in "$@"; do $docker stop --time "$grace" "bascule.$name" >/dev/null & done
  wait
  for name in "$@"; do
    case $($docker inspect --format '{{.State.Running}}' "bascule.$name" 2>&1) in
      true) echo "still there: bascule.$name" >&2; return 1 ;;
    esac
  done
}

# remove DOCKER NAME...: containers that have ended.
remove() {
  docker=$1; shift
  for name in "$@"; do $docker rm "bascule.$name" >/dev/null || true; done
}

"$@"
