#!/bin/sh
# From engine to engine: SGLang with packages that don't go together, then vLLM.
. "$(dirname "$0")/common.sh"

mixed="$place/site-sglang-mixed"
if [ ! -d "$mixed" ]; then
  mkdir -p "$mixed"
  for path in "$place/site-sglang"/*; do
    case ${path##*/} in transformers | transformers-* | tokenizers | tokenizers-*) ;; *) ln -s "$path" "$mixed/" ;; esac
  done
fi
step "${WITHIN:-400}" up "$here/pivot.yaml"
step 60 down pivot
keep pivot
say done
