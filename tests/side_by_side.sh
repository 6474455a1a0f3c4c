#!/bin/sh
# Runs all tests in three processes side by side: what starts engines and what makes hosts, which mostly wait, and the rest.
# usage: side_by_side.sh PYTEST
heavy='lab or engine or slow'
told=$(mktemp -d)
"$1" -m "not ($heavy) and not drill" >"$told/rest" 2>&1 &
rest=$!
"$1" -m "($heavy) and not drill" --ignore=tests/lifecycle --ignore=tests/drills >"$told/hosts" 2>&1 &
hosts=$!
trap 'kill "$rest" "$hosts" 2>/dev/null; cat "$told/rest" "$told/hosts"; rm -rf "$told"' EXIT
"$1" -m "($heavy) and not drill" tests/lifecycle tests/drills
status=$?
wait "$rest" || status=$?
wait "$hosts" || status=$?
exit "$status"
