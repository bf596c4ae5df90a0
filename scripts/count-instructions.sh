#!/usr/bin/env bash
# Counts the instructions that each step of a point's way takes, which is repeatable where times
# are not, and prints them as a table. The steps are those of `cargo bench`.
#
#   scripts/count-instructions.sh                    all steps
#   scripts/count-instructions.sh aggregate/         those whose name has that in it
#   scripts/count-instructions.sh --against FILE     with the ratio to an earlier table
#   scripts/count-instructions.sh --profile NAME     where the instructions of a step go
#
# Needs valgrind, which it installs on Debian, as root. A table takes three runs at once, the middle
# one of which is shown: hashes are keyed by chance, and the disk has a thread of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=3

main() {
  local filter="" against="" profile=""
  while (($#)); do
    case $1 in
      --against) against=${2:?a file with an earlier table}; shift ;;
      --profile) profile=yes ;;
      -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
      *) filter=$1 ;;
    esac
    shift
  done
  [[ -z $against || -r $against ]] || { echo "cannot read $against" >&2; exit 1; }
  install_valgrind
  local program scratch
  program=$(build)
  scratch=$(mktemp -d)
  # The name is wanted now: the variable is gone when the trap runs.
  trap "rm -rf '$scratch'" EXIT
  if [[ -n $profile ]]; then
    profile "$program" "$filter" "$scratch"
  else
    count_all "$program" "$filter" "$scratch"
    sort_out "$scratch" | table "$against"
  fi
}

install_valgrind() {
  command -v valgrind >/dev/null && return
  echo "installing valgrind" >&2
  { apt-get update && apt-get install --yes valgrind; } >&2
}

# Answers where the program is.
build() {
  cargo build --release --locked --bench steps --message-format=json-render-diagnostics |
    sed -n 's/.*"name":"steps".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

# count PROGRAM FILTER DIR: one run. Callgrind writes a file each time that `counted` ends, with
# what all threads did since it began; the program says in the same order what that was.
count() {
  mkdir "$3"
  valgrind --tool=callgrind --callgrind-out-file="$3/part" \
    --zero-before='steps::step::counted' --dump-after='steps::step::counted' \
    "$1" count "$2" >"$3/steps" 2>"$3/log" || { cat "$3/log" >&2; exit 1; }
}

count_all() {
  local run waiting=()
  for run in $(seq "$runs"); do
    count "$1" "$2" "$3/$run" &
    waiting+=($!)
  done
  for run in "${waiting[@]}"; do wait "$run"; done
}

# One line a step: its name, its unit, and the instructions of each unit, the median of all runs.
sort_out() {
  local dir part=0 name done unit
  while read -r name done unit; do
    part=$((part + 1))
    [[ -s $1/1/part.$part ]] || { echo "valgrind has not told of $name" >&2; exit 1; }
    for dir in "$1"/*; do instructions "$dir/part.$part"; done | sort -n |
      awk -v name="$name" -v done="$done" -v unit="$unit" '
        { all[NR] = $1 }
        END { printf "%s %s %.1f\n", name, unit, all[int((NR + 1) / 2)] / done }'
  done <"$1/1/steps"
}

instructions() {
  sed -n 's/^\(summary\|totals\): \([0-9]*\).*/\2/p' "$1" | head -n 1
}

# table AGAINST: with a column for the ratio, if there is an earlier table.
table() {
  awk -v against="$1" '
    BEGIN {
      if (against == "") {
        print "| step | instructions | each |"
        print "|---|--:|---|"
      } else {
        while ((getline line < against) > 0) {
          if (split(line, cell, / *\| */) >= 4) before[cell[2]] = cell[3]
        }
        print "| step | instructions | each | before | ratio |"
        print "|---|--:|---|--:|--:|"
      }
    }
    against == "" { printf "| %s | %s | %s |\n", $1, $3, $2; next }
    $1 in before { printf "| %s | %s | %s | %s | %.3f |\n", $1, $3, $2, before[$1], $3 / before[$1]; next }
    { printf "| %s | %s | %s | | |\n", $1, $3, $2 }'
}

# profile PROGRAM FILTER DIR: where they go, by function, first with what each calls and then alone.
# What other threads do is not in it.
profile() {
  mkdir "$3/profile"
  valgrind --tool=callgrind --callgrind-out-file="$3/profile/part" \
    --toggle-collect='steps::step::counted' "$1" count "$2" 2>"$3/profile/log" ||
    { cat "$3/profile/log" >&2; exit 1; }
  callgrind_annotate --auto=no --inclusive=yes --threshold=90 "$3/profile/part"
  callgrind_annotate --auto=no --threshold=90 "$3/profile/part"
}

main "$@"
