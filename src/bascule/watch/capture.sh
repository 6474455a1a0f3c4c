# Evidence of ranks that hang or died, read before anything is stopped: POSIX functions, sent over stdin. They only
# read, and send no signal. What can't be read says why.
set -u
export LC_ALL=C

# processes PID...: what the kernel says of each process and its threads, and where they wait; no ptrace is needed.
processes() {
  # shellcheck disable=SC2016
  awk '
    function show(file, most, wanted,   line, left) {
      for (left = most; left > 0 && (getline line <file) > 0; left--)
        if (wanted == "" || line ~ wanted) { gsub(/[^[:print:]\t]/, "?", line); print "  " line }
      close(file)
    }
    function first(file,   line) {
      if ((getline line <file) <= 0) line = "(can not be read)"
      close(file); gsub(/[^[:print:]]/, "?", line)
      return line
    }
    BEGIN {
      for (at = 1; at < ARGC && ARGV[at] != "--"; at++) {
        pid = ARGV[at]; base = "/proc/" pid
        print "process " pid " " first(base "/comm")
        show(base "/status", 80, "^(State|PPid|Uid|Threads|VmRSS|VmSwap|SigCgt|SigBlk|voluntary_ctxt|nonvoluntary|Cpus_allowed_list)")
        print "  wchan: " first(base "/wchan") "  syscall: " first(base "/syscall")
        show(base "/stack", 30, "")
      }
      for (at++; at < ARGC; at++) {
        text = first(ARGV[at] "/stat"); sub(/^.*\) /, "", text); split(text, f, " ")
        split(first(ARGV[at] "/syscall"), call, " ")
        print "thread " ARGV[at] " " first(ARGV[at] "/comm") ": " f[1] ", ticks " f[12] "+" f[13] ", wchan " first(ARGV[at] "/wchan") ", syscall " call[1]
      }
    }' "$@" -- $(for pid in "$@"; do ls -d "/proc/$pid/task/"* 2>/dev/null | head -n 64; done) </dev/null 2>&1
}

# stacks SECONDS PID...: the Python stacks, by py-spy where it is; it reads memory and does not pause the process.
stacks() {
  seconds=$1; shift
  echo "Python processes of $#:"
  tool=
  for pid in "$@"; do tool=$(py_spy "$pid") && break; done # engines rename processes: not each of them tells
  for pid in "$@"; do
    program=$(readlink "/proc/$pid/exe" 2>&1) || { echo "process $pid: its program can not be read"; continue; }
    case ${program##*/} in *python*) ;; *) continue ;; esac
    [ -n "$tool" ] || { echo "py-spy is neither on the node nor beside the engine: no Python stacks"; return 0; }
    echo "process $pid, by $tool"
    timeout -k 1 "$seconds" "$tool" dump --nonblocking --pid "$pid" 2>&1 </dev/null | head -c 60000
  done
}

py_spy() {
  command -v py-spy && return 0
  word=$(tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | head -n 1)
  [ -x "${word%/*}/py-spy" ] && echo "${word%/*}/py-spy" && return 0
  packages=$(tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | sed -n 's/^PYTHONPATH=//p' | head -n 1)
  packages=${packages%%:*} # a plain folder of packages has its programs in bin
  [ -n "$packages" ] && [ -x "$packages/bin/py-spy" ] && echo "$packages/bin/py-spy"
}

# network PEER...: names, addresses, and the way to each peer.
network() {
  echo "nodename=$(uname -n)"
  if command -v ip >/dev/null 2>&1; then
    ip -s address show 2>&1
    echo "== routes"; ip route show 2>&1
    for peer in "$@"; do echo "== to $peer"; ip route get "$peer" 2>&1; done
    echo "== neighbours"; ip neighbour show 2>&1 | head -n 200
  else
    echo "== no ip command; interfaces"; cat /proc/net/dev 2>&1
    echo "== routes"; cat /proc/net/route 2>&1
    for peer in "$@"; do echo "== to $peer: not read, there is no ip command"; done
  fi
  for gid in /sys/class/infiniband/*/ports/*/state; do [ -r "$gid" ] && echo "$gid $(cat "$gid")"; done
  return 0
}

# sockets: timers and retransmissions of all TCP sockets.
sockets() {
  if command -v ss >/dev/null 2>&1; then ss -tanoi 2>&1; else echo "no ss command"; fi
}

# ras: what NCCL says of itself on port 28028 (6D7C) of the loopback, where a rank listens (NCCL 2.24 or newer).
ras() {
  if grep -q '^ *[0-9]*: 00000000000000000000000001000000:6D7C .* 0A ' /proc/net/tcp6 2>/dev/null; then host=::1
  elif grep -q '^ *[0-9]*: [0-9A-F]*:6D7C .* 0A ' /proc/net/tcp 2>/dev/null; then host=127.0.0.1
  else echo "nobody listens on port 28028: no NCCL communicator, or NCCL_RAS_ENABLE=0"; return 0; fi
  if command -v nc >/dev/null 2>&1; then printf 'verbose status\n' | timeout 4 nc "$host" 28028 2>&1
  elif command -v python3 >/dev/null 2>&1; then timeout 4 python3 -c '
import socket, sys
s = socket.create_connection((sys.argv[1], 28028), 3)
s.settimeout(3)
s.sendall(b"verbose status\n")
try:
    while data := s.recv(65536): sys.stdout.buffer.write(data)
except OSError as trouble: print(trouble)' "$host" 2>&1
  else echo "no nc and no python3: not asked"; fi
  return 0
}

# kernel: the node's time and the namespace of our pids, then the end of the kernel log.
kernel() {
  echo "== now $(date '+%a %b %e %H:%M:%S %Y')"
  echo "== pids $(readlink /proc/self/ns/pid)"
  if log=$(dmesg -T 2>&1); then printf '%s\n' "$log" | tail -n 300; return 0; fi
  echo "dmesg: $(printf '%s\n' "$log" | tail -n 1)"
  if command -v journalctl >/dev/null 2>&1; then journalctl -k -n 300 --no-pager 2>&1
  else dmesg 2>&1 | tail -n 300; fi
}

# environment PID...: the variables of processes.
environment() {
  for pid in "$@"; do
    echo "== process $pid"
    tr '\n\0' ' \n' 2>&1 <"/proc/$pid/environ" || echo "(can not be read)"
  done 2>&1
}

# container DOCKER NAME: what the container engine knows of it, as JSON.
container() { $1 inspect "bascule.$2" 2>&1; }

# gpus: all that nvidia-smi says.
gpus() {
  if command -v nvidia-smi >/dev/null 2>&1; then nvidia-smi 2>&1; nvidia-smi -q 2>&1; else echo "no nvidia-smi"; fi
}

# machine FOLDER: memory, pressure and room.
machine() {
  for file in /proc/loadavg /proc/meminfo /proc/pressure/cpu /proc/pressure/io /proc/pressure/memory /proc/diskstats; do
    echo "== $file"; cat "$file" 2>&1
  done
  df -Pk "$1" /dev/shm /tmp 2>&1
}

# Only so much of each part leaves the node; when its time is over, what was read until then does.
"$@" | (trap '' TERM; exec head -c 200000)
