#!/usr/bin/env bash
# Profile MODELS (one a line, with options) at head and at the commit BASE, and write to OUT a table (table.md) and a
# page of each model. Ends with 1 when a gate of FAIL_IF (one a line) broke, with 2 when a model cannot be profiled
# at head, or at a base that has it: no gate is held to anything there.
set -uo pipefail
: "${MODELS:?}" "${BASE:?}" "${OUT:?}"
head=$PWD
base=$(mktemp -d)
trap 'git -C "$head" worktree remove --force "$base/tree" >/dev/null 2>&1; rm -rf "$base"' EXIT
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit 2 # whole: the base is run in another folder
code() { tr '\n`' '  ' <<<"$1" | sed 's/^ *\(.*[^ ]\) *$/`\1`/'; } # as a span of code: nothing in it is Markdown
tell() { printf '%s: %s\n' "$1" "$(code "$(tail -n 2 <<<"$2")")" >>"$OUT/table.md"; }
printf '<!-- opgraph -->\n# What the models cost\n' >"$OUT/table.md"
if ! said=$(git worktree add --quiet --detach "$base/tree" "$BASE" 2>&1); then
  tell '
The base cannot be checked out' "$said"
  exit 2
fi

gates=()
while IFS= read -r gate; do [ -n "$gate" ] && gates+=(--fail-if "$gate"); done <<<"${FAIL_IF:-}"
on=()
[ -n "${HARDWARE:-}" ] && on=(--hardware "$HARDWARE")

# What opgraph says of a model that there is none of: a file, what a file should have, a name.
none='^error: (there is no file [^ ]+|[^ ]+ has no [^ ]+|no source knows a model .*|cannot read .*: No such file or directory)$'

worst=0 number=0
note() { [ "$1" -gt "$worst" ] && worst=$1; }
while IFS= read -r line; do
  [ -n "${line// /}" ] || continue
  number=$((number + 1))
  read -r -a words <<<"$line" # words, and no code: nothing in them is expanded
  printf '\n## %s\n\n' "$(code "$line")" >>"$OUT/table.md"
  rm -f "$OUT/$number".{head,base}.json "$OUT/$number.html" # of a run before, in the same folder
  # Where it is run, the folder is head's or base's own, so that its code is what is profiled.
  for side in head base; do
    folder=$head
    [ "$side" = base ] && folder=$base/tree
    if ! said=$(cd "$folder" && opgraph profile "${words[@]}" --quiet -o "$OUT/$number.$side.json" 2>&1) ||
      [ ! -e "$OUT/$number.$side.json" ]; then # no model but --help, say
      if [ "$side" = base ] && [ -e "$OUT/$number.head.json" ] && grep -qE "$none" <<<"$said"; then
        printf 'It is new: the base has none.\n' >>"$OUT/table.md"
        continue
      fi
      tell "At $side it cannot be profiled" "$said"
      note 2
    fi
  done
  [ -e "$OUT/$number.head.json" ] && [ -e "$OUT/$number.base.json" ] || continue
  opgraph compare "$OUT/$number.base.json" "$OUT/$number.head.json" --markdown \
    ${on[@]+"${on[@]}"} ${gates[@]+"${gates[@]}"} >>"$OUT/table.md" 2>"$base/said"
  status=$?
  cat "$base/said" >&2
  [ "$status" -gt 1 ] && tell 'It cannot be compared' "$(<"$base/said")"
  note "$status"
  opgraph view "$OUT/$number.head.json" --against "$OUT/$number.base.json" --quiet -o "$OUT/$number.html"
done <<<"$MODELS"
exit "$worst"
