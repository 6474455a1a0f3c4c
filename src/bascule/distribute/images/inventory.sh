# What one node has to do with an image: IMAGE ALIAS. Sections of facts; what can't be read prints nothing or says why.
image=${1:-}
export LC_ALL=C
spool="$HOME/.cache/bascule/spool"
as=""
docker=""
said="docker is not installed"
if command -v docker >/dev/null 2>&1; then
  if said=$(docker version --format '{{.Server.Version}}' 2>&1); then docker="docker"
  elif sudo -n docker version >/dev/null 2>&1; then docker="sudo -n docker"
  fi
fi
if [ "$(id -u)" = 0 ]; then as="root"; elif sudo -n true >/dev/null 2>&1; then as="sudo"; fi
echo "=== docker"; echo "$docker"
echo "=== said"; [ -n "$docker" ] || echo "$said"
echo "=== user"; id -un
echo "=== root"; echo "$as"
echo "=== arch"; uname -m
echo "=== boot"; cat /proc/sys/kernel/random/boot_id
echo "=== cores"; nproc
echo "=== python"; python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
echo "=== spool"; echo "$spool"
echo "=== spool_free"; near=$spool; while [ ! -d "$near" ]; do near=$(dirname "$near"); done; stat -c %d "$near"
df -Pk "$near" | tail -n 1
echo "=== links"
default=$(ip -o -4 route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
ip -o -4 addr show 2>/dev/null | while read -r _ name _ address _; do
  speed=$(cat "/sys/class/net/$name/speed" 2>/dev/null || echo -1)
  kind=real; [ "$name" = lo ] && kind=lo
  [ -d "/sys/class/net/$name/bridge" ] && kind=bridge
  [ "$name" = "$default" ] && kind=default
  echo "$name $address $speed $kind"
done
[ -n "$docker" ] || exit 0
info=$($docker info --format '{{.DockerRootDir}}{{"\n"}}{{json .}}' 2>/dev/null)
root=$(echo "$info" | head -n 1)
echo "=== info"; printf '%s\n' "$info" | sed -n '2,$p'
echo "=== root_free"; near=$root; while [ ! -d "$near" ]; do near=$(dirname "$near"); done; stat -c %d "$near"
df -Pk "$near" | tail -n 1
echo "=== wanted"; for name in "$image" "${2:-}"; do
  [ -n "$name" ] && $docker image inspect --format '{{json .}}' "$name" 2>/dev/null && break
done
echo "=== images"
ids=$($docker image ls -q --no-trunc 2>/dev/null | sort -u)
# shellcheck disable=SC2086
[ -z "$ids" ] || $docker image inspect --format '{{json .RootFS.Layers}}' $ids 2>/dev/null | sort -u
