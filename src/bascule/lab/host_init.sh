# The first process of a lab host, in namespaces of its own: HOST_FOLDER NAME CGROUP.
# It sees the machine's files, with its own /run, /home, /root, /tmp and accounts, and keeps sshd and dockerd running
# unless they are told to stop (a file `sshd.stopped` or `dockerd.stopped` in its folder).
set -u
folder=$1 name=$2 cgroup=$3

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock /run/host
mount --bind "$folder" /run/host
folder=/run/host  # the way to it may lead through what is covered next
mount -t tmpfs -o mode=1777 tmpfs /dev/shm  # engines meet there: hosts must not
mount --bind "$folder/home" /home
# Root sees the machine's files here too, an interpreter perhaps; what it writes stays in the host's folder.
mount -t overlay overlay -o "lowerdir=/root,upperdir=$folder/root,workdir=$folder/root.work" /root
mount --bind "$folder/tmp" /tmp
for file in passwd group shadow hosts; do mount --bind "$folder/etc/$file" "/etc/$file"; done
hostname "$name"
cd /

keep() {
  service=$1; shift
  while :; do
    if [ -e "$folder/$service.stopped" ]; then sleep 0.2; continue; fi
    "$@" >>"$folder/$service.log" 2>&1 &
    echo $! >"/run/$service.keeper"
    wait $!
    sleep 0.2
  done
}

keep sshd /usr/sbin/sshd -D -e -f "$folder/sshd_config" &
if [ -e "$folder/dockerd.wanted" ]; then
  # shellcheck disable=SC2046
  keep dockerd dockerd --data-root "$folder/docker" --exec-root /run/docker --pidfile /run/docker.pid \
    --host unix:///run/docker.sock --group docker --bridge none --iptables=false --ip-masq=false \
    --cgroup-parent "$cgroup" $(cat "$folder/dockerd.wanted") &
fi
wait
