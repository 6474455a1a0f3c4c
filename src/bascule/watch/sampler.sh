# What the ranks of a node do right now, for all of them at once: POSIX functions, sent over stdin. They only read.
# Each answer ends with `=== end`; what can't be read is left out. Numbers are printed as the kernel wrote them.
set -u
export LC_ALL=C

# look RANK PLACE ROOT START MARKED [...] -- INTERFACES: counters of all ranks. PLACE is the run folder of a rank that
# is a process group, or "-"; ROOT and START are the first process of a container and when it began, or "-"; MARKED are
# the pids that `marks` found, with commas.
look() {
  echo "=== look"
  case " $* " in *" /"*) all=/proc/ ;; *) all=/nothing/ ;; esac # containers: their cgroup lists their processes
  # shellcheck disable=SC2016
  awk '
    function first(file,   text) { if ((getline text <file) <= 0) text = ""; close(file); return text }
    # The fields of /proc/PID/stat behind the name, which may hold anything; f[20] is when the process began.
    function stat(pid,   text, more, file) {
      file = "/proc/" pid "/stat"; text = ""
      while ((getline more <file) > 0) text = text more " "
      close(file)
      rest = text
      if (!sub(/^.*\) /, "", rest)) return 0
      name = substr(text, index(text, "(") + 1)
      name = substr(name, 1, length(name) - length(rest) - 2)
      gsub(/[^[:print:]]/, "?", name)
      split(rest, f, " ")
      return 1
    }
    function learn(pid) {
      if (pid in began || !stat(pid)) return
      parent[pid] = f[2]; session[pid] = f[4]; began[pid] = f[20]; seen[++count] = pid
      told[pid] = f[20] " " f[1] " " f[12] " " f[13] " " f[14] " " f[15] " " f[22]; named[pid] = name
    }
    # Where a cgroup controller keeps the group of the process `root`: version 1 by its name, else version 2.
    function group(root, controller,   file, line, part, found) {
      file = "/proc/" root "/cgroup"; found = ""
      while ((getline line <file) > 0) {
        split(line, part, ":")
        sub(/^[^:]*:[^:]*:/, "", line)
        if (line == "/") continue
        if (part[1] == "0" && found == "") found = line
        if (index("," part[2] ",", "," controller ",")) { found = "1 " part[2] " " line; break }
      }
      close(file)
      if (found == "") return ""
      if (substr(found, 1, 2) != "1 ") { # 2: whole or, beside version 1, in a place of its own
        if (first("/sys/fs/cgroup" found "/cgroup.procs") != "") return "/sys/fs/cgroup" found
        return "/sys/fs/cgroup/unified" found
      }
      split(found, part, " "); sub(/^1 [^ ]* /, "", found)
      if (first("/sys/fs/cgroup/" part[2] found "/cgroup.procs") != "") return "/sys/fs/cgroup/" part[2] found
      return "/sys/fs/cgroup/" controller found
    }
    # Prints the lines that are wanted, `most` of them (0: all); -1 when there is no such file.
    function lines(prefix, file, wanted, most,   line, got, printed) {
      printed = 0
      while ((most == 0 || printed < most) && (got = getline line <file) > 0)
        if (line ~ wanted) { print prefix, line; printed++ }
      close(file)
      return got
    }
    function cgroup(at, root,   rank, place, line, had) {
      rank = number[at]
      place = group(root, "cpuacct")
      if (place != "") {
        lines("cgroup " rank " cpu", place "/cpu.stat", "^usage_usec ")
        lines("cgroup " rank " cpu usage_nsec", place "/cpuacct.usage", "^[0-9]+$")
        while ((getline line <(place "/cgroup.procs")) > 0) if (++listed <= 4000) { learn(line); of[line] = at }
        close(place "/cgroup.procs")
      }
      place = group(root, "blkio")
      if (place != "") {
        had = lines("cgroup " rank " io", place "/io.stat", "rbytes=")
        if (had < 0) had = lines("cgroup " rank " io", place "/blkio.throttle.io_service_bytes", " (Read|Write) ")
        has_io[at] = had >= 0 # not all have that controller: then the processes are asked
        if (had >= 0) print "cgroup", rank, "io - rbytes=0 wbytes=0" # a device without I/O has no line
      }
      place = group(root, "memory")
      if (place != "") {
        lines("cgroup " rank " memory", place "/memory.current", "^[0-9]+$")
        lines("cgroup " rank " memory", place "/memory.usage_in_bytes", "^[0-9]+$")
      }
      place = group(root, "freezer")
      if (place != "") {
        lines("cgroup " rank " paused", place "/cgroup.events", "^frozen 1$")
        lines("cgroup " rank " paused", place "/freezer.state", "^(FREEZING|FROZEN)$")
      }
    }
    function io(pid,   file, line, part, read, written) {
      file = "/proc/" pid "/io"; read = "-"; written = "-"
      while ((getline line <file) > 0) {
        split(line, part, " ")
        if (part[1] == "read_bytes:") read = part[2]
        if (part[1] == "write_bytes:") written = part[2]
      }
      close(file)
      return read " " written
    }
    function net(rank, root,   file, line, part) {
      file = "/proc/" root "/net/dev"
      while ((getline line <file) > 0) {
        if (!sub(/:/, " ", line)) continue
        split(line, part, " ")
        if (part[1] != "lo" && (wanted == "-" || index("," wanted ",", "," part[1] ","))) print "net", rank, part[1], part[2], part[10]
      }
      close(file)
    }
    BEGIN {
      lines("page", "/proc/self/smaps", "^KernelPageSize:", 1)
      at = 1
      for (ranks = 0; ARGV[at] != "--"; at += 5) {
        rank = ++ranks; number[rank] = ARGV[at]; place[rank] = ARGV[at + 1]
        root[rank] = ARGV[at + 2]; start[rank] = ARGV[at + 3]; marked[rank] = ARGV[at + 4]
      }
      wanted = ARGV[++at]
      for (at++; at < ARGC && ARGV[at] != "--"; at++) { pid = ARGV[at]; sub(/^.*\//, "", pid); learn(pid) }
      for (rank = 1; rank <= ranks; rank++) {
        if (place[rank] != "-") {
          split(first(place[rank] "/pid"), part, " ")
          if (part[3] == first("/proc/sys/kernel/random/boot_id")) { root[rank] = part[1]; start[rank] = part[2] }
        }
        learn(root[rank])
        # The number may be another process by now. A leader that ended leaves its session behind.
        if (root[rank] == "-" || root[rank] in began && began[root[rank]] != start[rank]) { root[rank] = "-"; continue }
        of[root[rank]] = rank
        if (place[rank] == "-") cgroup(rank, root[rank])
        else for (i = 1; i <= count; i++) if (session[seen[i]] == root[rank]) of[seen[i]] = rank
        split("", part); split(marked[rank], part, ",")
        for (i in part) if (part[i] in began) of[part[i]] = rank
      }
      for (more = 1; more; ) {
        more = 0
        for (i = 1; i <= count; i++)
          if (!(seen[i] in of) && parent[seen[i]] in of) { of[seen[i]] = of[parent[seen[i]]]; more = 1 }
      }
      for (i = 1; i <= count; i++) {
        pid = seen[i]
        if (!(pid in of) || ++printed > 4000) continue
        if (!(of[pid] in any)) any[of[pid]] = pid
        print "process", number[of[pid]], pid, told[pid], (has_io[of[pid]] ? "- -" : io(pid)), named[pid]
      }
      for (rank = 1; rank <= ranks; rank++) {
        print "rank", number[rank], (root[rank] in began ? root[rank] " " start[rank] : "- -")
        if (rank in any) net(number[rank], (root[rank] in began ? root[rank] : any[rank]))
      }
      for (at++; at < ARGC; at++) if ((value = first(ARGV[at])) != "") print "rdma", ARGV[at], value
    }' "$@" "$all"[0-9]* -- /sys/class/infiniband/*/ports/*/counters/port_*_data </dev/null &&
    echo "=== end"
}

# roots DOCKER RANK NAME...: the first process of each container, and when it began.
roots() {
  docker=$1; shift
  echo "=== roots"
  while [ $# -ge 2 ]; do
    pid=$($docker inspect --format '{{.State.Pid}}' "bascule.$2" 2>/dev/null </dev/null) || pid=0
    began=$(sed 's/^.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 20)
    [ -n "$began" ] && echo "root $1 $pid $began"
    shift 2
  done
  ended
}

# marks RANK PLACE...: processes that carry a rank's mark in their environment; some leave the session of the rank.
# The grep of busybox has no -z: then only sessions and parents tell what belongs to a rank.
marks() {
  echo "=== marks"
  while [ $# -ge 2 ]; do
    grep -lzxF -e "BASCULE_RANK=$2" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 | head -n 500 |
      while read -r pid; do echo "mark $1 $pid"; done
    shift 2
  done
  ended
}

# gpus INDEXES: these GPUs of the node, or all, and what computes on them; a value that a GPU does not report is
# printed as it says.
gpus() {
  echo "=== gpus"
  ask_gpus gpu --query-gpu=uuid,utilization.gpu,power.draw,memory.used "$1"
  ask_gpus app --query-compute-apps=pid,used_memory,gpu_uuid "$1"
  ended
}

ask_gpus() {
  tag=$1; which=$3
  set -- "$2"
  [ "$which" = all ] || set -- "$@" -i "$which"
  timeout -k 1 5 nvidia-smi "$@" --format=csv,noheader,nounits 2>/dev/null </dev/null | head -n 200 |
    while IFS= read -r line; do echo "$tag $line"; done
}

# caches SECONDS RANK ROOT FOLDERS...: KiB in the folders (with colons) of a rank; those of a container by its root.
caches() {
  seconds=$1; shift
  echo "=== caches"
  while [ $# -ge 3 ]; do
    if [ "$2" = - ]; then base=; else base=/proc/$2/root; fi
    size_of "$1" "$base" "$3"
    shift 3
  done
  ended
}

size_of() {
  rank=$1; base=$2; left=$3:; home=${HOME:-/root}; user=${USER:-root}
  [ -z "$base" ] || { home=/root; user=root; } # as in most images
  [ -z "$base" ] || [ -x "$base/" ] || return 0
  set --
  while [ -n "$left" ]; do
    folder=${left%%:*}; left=${left#*:}
    case "$folder" in
      "~/"*) folder=${home}/${folder#"~/"} ;;
      *%u) folder=${folder%"%u"}$user ;;
    esac
    [ -d "$base$folder" ] && set -- "$@" "$base$folder"
  done
  if [ $# = 0 ]; then echo "cache $rank 0"; return 0; fi
  sizes=$(timeout -k 1 "$seconds" du -skx "$@" 2>/dev/null </dev/null)
  case $? in 124 | 137) return 0 ;; esac
  printf '%s\n' "$sizes" | while read -r size _; do echo "cache $rank $size"; done
}

# sockets RANK ROOT PIDS...: TCP sockets of the ranks. `mine` where the descriptors of its processes (PIDS, with
# commas) could be read; else `any`: all of its network.
sockets() {
  echo "=== sockets"
  while [ $# -ge 3 ]; do
    sockets_of "$1" "$2" "$3"
    shift 3
  done
  ended
}

sockets_of() {
  rank=$1; root=$2; left=$3,
  set --
  while [ -n "$left" ]; do set -- "$@" "/proc/${left%%,*}/fd"; left=${left#*,}; done
  # shellcheck disable=SC2016
  ls -ln "$@" 2>/dev/null | awk -v rank="$rank" -v root="$root" '
    match($0, /socket:\[[0-9]+\]/) { mine[substr($0, RSTART + 8, RLENGTH - 9)] = 1 }
    / -> / { readable = 1 }
    function table(file,   line, f, left) {
      for (left = 20000; left > 0 && (getline line <file) > 0; left--) {
        split(line, f, " ")
        if (f[4] !~ /^[0-9A-F][0-9A-F]$/ || readable && !(f[10] in mine)) continue
        if (f[4] == "01" && f[2] ~ /^0*(FFFF0000)?[0-9A-F][0-9A-F]00007F:/) continue # among its own processes
        if (++printed <= 1000) print "socket", rank, (readable ? "mine" : "any"), f[4], f[2], f[3]
      }
      close(file)
    }
    END { table("/proc/" root "/net/tcp"); table("/proc/" root "/net/tcp6"); print "network", rank, (readable ? "mine" : "any") }'
}

# requests PORT: how many connections to the API have sent something and got nothing since, and the milliseconds since
# the first of them did; nothing where there is no `ss`, which leaves out what is 0.
requests() {
  echo "=== requests"
  # shellcheck disable=SC2016
  command -v ss >/dev/null 2>&1 && ss -tniH state established sport = ":$1" 2>/dev/null </dev/null | head -n 4000 | awk '
    /bytes_received:/ {
      split("", value)
      for (i = 1; i <= NF; i++) if (split($i, part, ":") == 2) value[part[1]] = part[2]
      if (value["bytes_sent"] > 0 && value["lastrcv"] + 0 >= value["lastsnd"] + 0) next
      count++
      if (value["lastrcv"] + 0 > longest) longest = value["lastrcv"] + 0
    }
    END { print "waiting", count + 0, longest + 0 }'
  ended
}

# The CPU time of this shell and of its children, as `times` prints it, so that a dear look can be made less often.
ended() { echo "=== took"; times; echo "=== end"; }

[ $# = 0 ] || "$@" # without words, the functions are only defined
