# Where things are on the GPU machine, and what the scripts beside this share; they are run from anywhere, by sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
place=${GPU_PLACE:-/tmp/gpu}
carried=$root
if [ -d "$place/tree" ]; then # as it was at the first call: all calls run the same
  root=$place/tree here=$place/tree/examples/gpu
fi
OUT=${OUT:-$place/out}
export XDG_STATE_HOME="$place/state" PYTHONUNBUFFERED=1 NO_COLOR=1 BASCULE_SSH="python3 $here/netns_ssh.py"
mkdir -p "$place/kits" "$place/models" "$OUT" "$XDG_STATE_HOME"

bascule() {
  PYTHONPATH="$place/bascule:$root/src" python3 -c 'from bascule.cli import main; main()' "$@"
}

since=$(date +%s)
say() { echo "== $(($(date +%s) - since)) s  $*"; }

# step SECONDS WORDS...: one command within its time, told with its exit status; a bascule that is late is interrupted,
# and cleans up.
step() {
  seconds=$1; shift
  say "$*"
  PYTHONPATH="$place/bascule:$root/src" timeout -s INT -k 30 "$seconds" python3 -c 'from bascule.cli import main; main()' "$@"
  say "exit $? of $1 ${2:-}"
}

# keep NAME: the journal and all evidence so far, and the story of the newest run.
keep() {
  bascule why >"$OUT/$1.why.txt" 2>&1
  tar czf "$OUT/$1.state.tgz" -C "$XDG_STATE_HOME" bascule
  ls -la "$OUT"
}

# unpack NAME: the parts that were carried so far, to the folder that recipes name.
unpack() {
  mkdir -p "$place/site-$1"
  cat "$place/kits/$1"/part.* | xz -dc -T0 | tar xf - -C "$place/site-$1"
  say "unpacked $1: $(du -sm "$place/site-$1" | cut -f 1) MB"
}
