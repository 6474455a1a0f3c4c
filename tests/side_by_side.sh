#!/bin/sh
# Lint, types and all tests, side by side in what two cores can do: what needs no engine runs while those are built.
# What a part prints comes when it has ended. usage: side_by_side.sh PYTEST MAKE
pytest=$1 make=$2
needs='(lab or engine or slow)'
heavy="$needs and not drill"
told=$(mktemp -d)
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null; done; rm -rf "$told"' EXIT
trap 'exit 130' INT TERM
status=0

begin() { # NAME COMMAND...: in the background; its pid is in $begun
  name=$1; shift
  echo "tests: $name begins"
  "$@" >"$told/$name" 2>&1 &
  begun=$!
  pids="$pids $begun"
}

ended() { # NAME PID
  wait "$2" || { status=$?; echo "tests: $1 FAILED"; }
  cat "$told/$1"
}

begin rest "$pytest" -m "not $needs and not drill"; rest=$begun
begin checks "$make" --no-print-directory lint types; checks=$begun
"$make" --no-print-directory engines || exit
ended checks "$checks"
[ "$status" = 0 ] || exit "$status"

begin hosts "$pytest" -m "$heavy" --ignore=tests/lifecycle --ignore=tests/drills; hosts=$begun
long="tests/lifecycle/test_lab_docker.py tests/lifecycle/test_ssh.py tests/lifecycle/test_demo.py tests/drills"
# shellcheck disable=SC2086
begin engines "$pytest" -m "$heavy" $long; engines=$begun
ended rest "$rest"
set -- "$pytest" -m "$heavy" tests/lifecycle
for path in $long; do set -- "$@" --ignore="$path"; done
begin lives "$@"; lives=$begun
ended lives "$lives"
ended hosts "$hosts"
ended engines "$engines"
exit "$status"
