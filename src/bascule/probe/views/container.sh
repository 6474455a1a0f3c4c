# Reads an image or a container on a node without starting it: POSIX functions, sent over stdin. DOCKER is its words.
set -u
export LC_ALL=C

# describe DOCKER TARGET: what it is, its id, how root is had, its platform, and an image's layers as overlay2 has them.
describe() {
  docker=$1
  for kind in image container; do
    # shellcheck disable=SC2086
    if id=$($docker "$kind" inspect --format '{{.Id}}' "$2" 2>/dev/null); then break; else id=; fi
  done
  if [ -z "$id" ]; then
    # shellcheck disable=SC2086
    $docker image inspect "$2" 2>&1 >/dev/null | tail -n 1; return 4
  fi
  echo "kind $kind"; echo "id $id"
  if [ "$(id -u)" = 0 ]; then as=root; elif sudo -n true >/dev/null 2>&1; then as=sudo; else as=; fi
  echo "root $as"
  case $kind in
    image) arch='{{.Os}}/{{.Architecture}}' ;;
    container) arch='{{.Platform}}' ;;
  esac
  # shellcheck disable=SC2086
  echo "platform $($docker "$kind" inspect --format "$arch" "$id")"
  if [ -z "$as" ] || [ "$kind" = container ]; then return 0; fi
  # shellcheck disable=SC2086
  for layer in $($docker image inspect --format '{{.GraphDriver.Data.UpperDir}}:{{.GraphDriver.Data.LowerDir}}' "$id" \
    2>/dev/null | sed 's/<no value>//g' | tr ':' ' '); do
    # The short names that docker and podman made for mounting: the options of a mount must fit one page.
    if link=$(short "$as" "${layer%/diff}/link"); then echo "layer $(dirname "${layer%/diff}") l/$link"; fi
  done
}

# short AS FILE: what the file says, read as root.
short() {
  if [ "$1" = sudo ]; then sudo -n cat "$2" 2>/dev/null; else cat "$2" 2>/dev/null; fi
}

# find_roots TOP PACKAGE...: lines `PACKAGE FOLDER`, where FOLDER holds it: only the likely places are looked at.
find_roots() {
  top=${1%/}; shift
  for folder in "$top"/usr/local/lib/python3*/*-packages "$top"/opt/*/lib/python3*/site-packages \
    "$top"/usr/lib/python3*/*-packages "$top"/root/.venv/lib/python3*/site-packages \
    "$top"/*/.venv/lib/python3*/site-packages "$top"/opt/venv/*/lib/python3*/site-packages; do
    for package in "$@"; do
      if [ -e "$folder/$package" ]; then echo "$package $folder"; fi
    done
  done
}

# search_roots TOP PACKAGE...: the same wherever they are; slow in a big image.
search_roots() {
  top=${1%/}/; shift
  for package in "$@"; do
    find "$top" -xdev -type d -name "$package" -path "*-packages/$package" 2>/dev/null | head -n 5 |
      sed "s,\(.*\)/[^/]*\$,$package \1,"
  done
}

# pythons DOCKER ID: the versions of Python that its usual places name, as in python3.12.
pythons() {
  for place in /usr/local/bin /opt/venv/bin /opt/conda/bin /usr/bin; do
    # shellcheck disable=SC2086
    $1 cp "$2:$place/python3" - 2>/dev/null | tar -tvf - 2>/dev/null | sed -n 's,.*-> .*\(python3\.[0-9]*\)$,\1,p'
  done | sort -u
}

# with_container DOCKER KIND ID: makes $folder, and $id a container, which is removed at the end. The folder stays only
# when `keep` was said: not when the script is ended, or nobody listens any more.
with_container() {
  docker=$1 kind=$2 id=$3 made=
  folder=$(mktemp -d) || exit 3
  trap 'clean' EXIT
  trap 'exit 1' HUP INT TERM PIPE
  # shellcheck disable=SC2086
  if [ "$kind" = image ]; then
    made=$($docker create --network none "$id" true) || exit 4
    id=$made
  fi
}

clean() {
  # shellcheck disable=SC2086
  [ -z "$made" ] || $docker rm -f "$made" >/dev/null 2>&1
  [ -z "$folder" ] || rm -rf "$folder"
}

# keep LINES: prints the folder and what is known of it, and leaves it to the caller.
keep() {
  echo "$folder"; echo "$1" || exit 1
  folder=
}

# roots PACKAGE...: lines `PACKAGE FOLDER` for the first usual folder of the container $id that has one of them.
roots() {
  for version in $(pythons "$docker" "$id"); do
    for root in "/usr/local/lib/$version/dist-packages" "/usr/local/lib/$version/site-packages" \
      "/opt/venv/lib/$version/site-packages" "/opt/conda/lib/$version/site-packages" \
      "/usr/lib/python3/dist-packages" "/root/.venv/lib/$version/site-packages"; do
      found=
      for package in "$@"; do
        # shellcheck disable=SC2086
        if $docker cp "$id:$root/$package/__init__.py" - >/dev/null 2>&1; then found=yes; echo "$package $root"; fi
      done
      [ -z "$found" ] || return 0
    done
  done
}

# find_copied DOCKER KIND ID PACKAGE...: the same for an image or a container.
find_copied() {
  with_container "$1" "$2" "$3"; shift 3
  roots "$@"
}

# list_all DOCKER KIND ID PACKAGE...: the same wherever they are; the whole image goes by once, and nothing is kept.
list_all() {
  with_container "$1" "$2" "$3"; shift 3
  # shellcheck disable=SC2086
  $docker export "$id" | tar -t | sed -n 's,^\(.*-packages\)/\([^/]*\)/__init__\.py$,\2 /\1,p' |
    while read -r package root; do
      case " $* " in *" $package "*) echo "$package $root" ;; esac
    done
}

# take PATH: one path of the container, to the same place below $folder; what isn't there is left out.
take() {
  mkdir -p "$(dirname "$folder$1")"
  # shellcheck disable=SC2086
  $docker cp "$id:$1" "$folder$1" >/dev/null 2>&1
}

# tidy: what belongs to root in the image is ours here; links that lead out of the folder would show files of this node.
tidy() {
  chmod -R u+rwX "$folder"
  find "$folder" -type l \( -lname '/*' -o -lname '*..*' \) -delete
}

# copy_out DOCKER KIND ID PACKAGE ROOT DISTRIBUTIONS PATH...: paths beside the package, in a new folder that is printed
# first; then the package and its folder there. ROOT is where it is, or empty; PATHs may be folders; DISTRIBUTIONS are
# the names of its METADATA.
copy_out() {
  with_container "$1" "$2" "$3"; package=$4 root=$5 names=$6; shift 6
  if [ -z "$root" ]; then root=$(roots "$package" | head -n 1); root=${root#* }; fi
  [ -n "$root" ] || { keep ""; return; }
  for module in "$package" transformers; do
    set -- "$@" "$module/_version.py" "$module/version.py" "$module/__init__.py"
  done
  for path in "$@"; do take "$root/$path" & done
  wait
  for module in "$package" transformers; do
    version=$(cat "$folder$root/$module/"*version.py "$folder$root/$module/__init__.py" 2>/dev/null |
      sed -n "s/^__version__.*=[^'\"]*['\"]\([^'\"]*\)['\"].*/\1/p" | head -n 1)
    for name in $(echo "$names" | tr - _) "$module"; do
      [ -z "$version" ] || take "$root/$name-$version.dist-info/METADATA" &
      [ "$version" = "${version%%+*}" ] || take "$root/$name-${version%%+*}.dist-info/METADATA" &
    done
  done
  wait
  tidy
  keep "$package $folder$root"
}

# unpack DOCKER KIND ID PACKAGE PATTERN...: the whole image goes by once, and what matches stays in a new folder.
unpack() {
  with_container "$1" "$2" "$3"; package=$4; shift 4
  # shellcheck disable=SC2086
  $docker export "$id" | tar -x -C "$folder" --no-same-owner --wildcards "$@" 2>/dev/null
  tidy
  keep "$(search_roots "$folder" "$package")"
}

"$@"
