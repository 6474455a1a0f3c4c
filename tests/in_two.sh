#!/bin/sh
# Runs all tests in two processes side by side: what makes hosts or starts engines, which mostly waits, and the rest.
# usage: in_two.sh PYTEST
heavy='lab or engine or slow'
told=$(mktemp)
"$1" -m "not ($heavy) and not drill" >"$told" 2>&1 &
rest=$!
trap 'kill "$rest" 2>/dev/null; cat "$told"; rm -f "$told"' EXIT
"$1" -m "($heavy) and not drill"
status=$?
wait "$rest" || status=$?
exit "$status"
