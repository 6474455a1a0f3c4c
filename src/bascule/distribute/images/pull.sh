# A pull of an image on a node, detached: it goes on when the connection that began it ends. Functions, sent over stdin.
# A pull is a folder with: log (what docker printed), pid (of its session), status (once it ended).
set -u

# begin DOCKER REFERENCE: starts it and prints its folder; DOCKER may be several words.
begin() {
  folder=$(mktemp -d "${TMPDIR:-/tmp}/bascule-pull.XXXXXX") || exit
  setsid sh -c 'echo $$ >"$1/pid"; $2 pull "$3" >"$1/log" 2>&1 </dev/null; echo $? >"$1/status"' \
    sh "$folder" "$1" "$2" >/dev/null 2>&1 </dev/null &
  echo "$folder"
}

# look FOLDER: the status, or - while it runs; then the log's end.
look() {
  cat "$1/status" 2>/dev/null || echo -
  tail -c 65536 "$1/log" 2>/dev/null
  true
}

# finish FOLDER: ends what is left of it, and removes the folder.
finish() {
  if [ ! -r "$1/status" ] && read -r pid <"$1/pid"; then
    kill -TERM -- "-$pid"
    tries=0
    while kill -0 -- "-$pid" && [ "$tries" -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -KILL -- "-$pid"
  fi 2>/dev/null
  rm -rf "$1"
}

# room FOLDER: free bytes where docker keeps images; of a folder that this user may not enter, those of the next one up.
room() {
  place=$1
  while [ -n "$place" ] && ! df -Pk "$place" >/dev/null 2>&1; do place=${place%/*}; done
  df -Pk "${place:-/}" | tail -n 1 | awk '{ printf "%.0f\n", $4 * 1024 }'
}

"$@"
