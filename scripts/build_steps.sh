# Holds steps that the commands in scripts/ share: saying what is done, finding the CUDA toolkit,
# set-up, configuring and building a preset. Sourced by bash scripts that set ROOT to the checkout.
# shellcheck shell=bash

VENV="$ROOT/.venv"
STATE="$ROOT/.setup"   # logs and the lock; ignored by git
JOBS="$(nproc)"
mkdir -p "$STATE"

# say TEXT...: what is being done now. Standard output stays free for what a command is asked for.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die STATUS LINE...: the reason and what to do about it, a line each.
die() {
  local status="$1" line
  shift
  for line in "$@"; do say "$line"; done
  exit "$status"
}

# Seconds since the start of the script, with one decimal, or between two such times.
now_seconds() { awk '{ printf "%.1f", $1 }' /proc/uptime; }
seconds_since() { awk -v from="$1" '{ printf "%.1f", $1 - from }' /proc/uptime; }

# run_logged WHAT LOG COMMAND...: runs it with its output in .setup/LOG, says how long it took, and
# on failure shows the end of the log and returns the command's status.
run_logged() {
  local what="$1" log="$STATE/$2" started status=0
  shift 2
  started="$(now_seconds)"
  say "$what ..."
  "$@" >"$log" 2>&1 </dev/null 9>&- || status=$?
  if ((status != 0)); then
    tail -n 30 "$log" >&2
    say "    failed with status $status; the whole output is in ${log#"$ROOT"/}"
    return "$status"
  fi
  say "    done in $(seconds_since "$started") s"
}

# One set-up or build of this checkout at a time: a second one waits for the first. Commands that
# may outlive the step are started with 9>&-, so that they do not hold the lock.
take_lock() {
  exec 9>"$STATE/lock"
  if ! flock --nonblock 9; then
    say "another set-up or build of this checkout is running; waiting for it"
    flock 9
  fi
}
drop_lock() { exec 9>&-; }

# Prints the compiler of a CUDA toolkit of version 13 or newer, if there is one. configure tells CMake,
# which by itself would take the first nvcc that it finds, of any version.
cuda_toolkit() {
  local nvcc major
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" \
      "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [[ -n "$nvcc" && -x "$nvcc" ]] || continue
    major="$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')"
    if [[ -n "$major" ]] && ((major >= 13)); then
      printf '%s\n' "$nvcc"
      return 0
    fi
  done
}

# Prints the CUDA compiler if this build is one with CUDA: with SPARFUSE_CUDA=ON wherever there is a
# toolkit, with AUTO (the default) where a card is seen too.
cuda_compiler() {
  case "${SPARFUSE_CUDA:-AUTO}" in
    ON) cuda_toolkit ;;
    AUTO) if [[ -z "$(why_no_gpu)" ]]; then cuda_toolkit; fi ;;
    OFF) ;;
    *) die 2 "SPARFUSE_CUDA is '$SPARFUSE_CUDA'; known: AUTO, ON, OFF" ;;
  esac
}

# Prints why no CUDA card can be used here with CUDA 13, or nothing if one can.
why_no_gpu() { python3 "$ROOT/scripts/why_no_gpu.py"; }

# Ends with status 2 unless there are a card and what compiles for it.
require_gpu() {
  local reason
  reason="$(why_no_gpu)"
  [[ -z "$reason" ]] || die 2 "--gpu needs a CUDA card: $reason"
  [[ "$(main_preset)" != cpu ]] || die 2 "--gpu does not go with SPARFUSE_CUDA=OFF"
  [[ -n "$(cuda_compiler)" ]] || die 2 "--gpu needs a CUDA toolkit of version 13 or newer (nvcc)"
}

# Ends with status 2 unless what main_preset builds is with CUDA.
require_cuda_build() {
  local preset
  preset="$(main_preset)"
  grep -q -- -DSPARFUSE_CUDA "$ROOT/build/$preset/build.ninja" ||
    die 2 "build/$preset was configured without CUDA:" \
      "$(grep 'sparfuse: built without CUDA' "$STATE/configure-$preset.log" || true)"
}

# The preset that the commands build: `cpu` where the environment says SPARFUSE_CUDA=OFF, `cuda` where
# it says ON, else `release`, with CUDA where there are a toolkit and a card.
main_preset() {
  case "${SPARFUSE_CUDA:-AUTO}" in
    ON) echo cuda ;;
    OFF) echo cpu ;;
    *) echo release ;;
  esac
}

# ./sparfuse runs the program of the preset that was set up last.
write_wrapper() {
  local wrapper="$ROOT/sparfuse" preset
  preset="$(main_preset)"
  cat >"$wrapper.new" <<END
#!/bin/sh
# Runs the program of this checkout; scripts/setup writes this file.
root=\$(dirname "\$(readlink -f "\$0")")
program="\$root/build/$preset/harness/sparfuse"
[ -x "\$program" ] || { echo "sparfuse: \$program is not built: run scripts/setup" >&2; exit 2; }
PATH="\$root/.venv/bin:\$PATH" exec "\$program" "\$@"
END
  chmod +x "$wrapper.new"
  mv "$wrapper.new" "$wrapper"
}

# Those below return a status and do not rely on errexit, which is off where a caller tests it.

# configure PRESET: runs cmake only where ninja would not do it by itself: the first time, after an
# interrupted configuration, and when the presets or the toolchain have changed. cuda-sm90 is the preset
# cuda for compute capability 9.0 alone. Where LibTorch is not installed, what needs it is left out
# until it is.
configure() {
  local preset="$1" folder="$ROOT/build/$1" nvcc key
  local -a architecture=() left_out=()
  [[ -e "$VENV/.sparfuse-libtorch" ]] || left_out=(-DSPARFUSE_TORCH=OFF)
  [[ "$preset" != cuda-sm* ]] || architecture=("CUDAARCHS=${preset#cuda-sm}-real")
  nvcc="$(cuda_compiler)"
  key="$( { cat "$ROOT/CMakePresets.json" "$VENV"/.sparfuse-{tools,libtorch} 2>/dev/null || true
    echo "$ROOT"; echo "$nvcc"; g++ --version; } | sha256sum)"
  if [[ -f "$folder/build.ninja" && "$(cat "$folder/.configured" 2>/dev/null)" == "$key" ]]; then
    return 0
  fi
  mkdir -p "$folder"
  rm -f "$folder/.configured"
  run_logged "configuring build/$preset" "configure-$preset.log" \
    env -C "$ROOT" ${nvcc:+"CUDACXX=$nvcc"} "${architecture[@]}" "$VENV/bin/cmake" --fresh \
    --preset "${preset%-sm*}" "${left_out[@]}" -B "$folder" || return
  grep -E 'sparfuse: ' "$STATE/configure-$preset.log" | sed 's/^-- sparfuse/   build/' >&2 || true
  printf '%s' "$key" >"$folder/.configured"
}

# Reads ninja's output: passes on what is not progress, and says how far it is and how long it will
# take; on a terminal in one line that changes, else every fifteen seconds.
show_progress() {
  local folder="$1" line done=0 total=0 started shown=-15 spent text
  started=$SECONDS
  while IFS= read -r line; do
    if [[ ! "$line" =~ ^\[([0-9]+)/([0-9]+)\]\ (Re-)? ]]; then
      [[ "$line" =~ ^ninja:\ (Entering|no\ work) ]] || printf '%s\n' "$line"
      continue
    fi
    done="${BASH_REMATCH[1]}" total="${BASH_REMATCH[2]}"
    [[ -z "${BASH_REMATCH[3]}" ]] || continue   # CMake looks for new files
    spent=$((SECONDS - started))
    text="building $folder: $done of $total$(time_left "$spent" "$done" "$total")"
    if [[ -t 2 ]]; then
      printf '\r%s: %s\033[K' "${0##*/}" "$text"
    elif ((spent >= shown + 15 && total > 1)); then
      say "$text"
      shown=$spent
    fi
  done >&2
  if [[ -t 2 ]] && ((total > 0)); then printf '\n' >&2; fi
}

# time_left SECONDS DONE TOTAL: ", about 3 min left" where DONE of TOTAL equal steps took SECONDS, ""
# where too few are done to tell.
time_left() {
  local left
  (($1 >= 5 && $2 >= 5 && $2 < $3)) || return 0
  left=$(($1 * ($3 - $2) / $2))
  if ((left >= 90)); then
    printf ', about %d min left' $(((left + 30) / 60))
  else
    printf ', about %d s left' $((left / 10 * 10 + 10))
  fi
}

# build PRESET TARGET...: configures if needed and brings the targets up to date.
build() {
  local preset="$1" folder="$ROOT/build/$1" started status=0
  local -a ninja=("$VENV/bin/ninja" -C "$folder" -j "$JOBS" "${@:2}")
  started="$(now_seconds)"
  take_lock
  if ! configure "$preset"; then
    drop_lock
    return 1
  fi
  { "${ninja[@]}" 2>&1 | tee "$STATE/build-$preset.log" | show_progress "build/$preset"; } 9>&- ||
    status=$?
  drop_lock
  if ((status != 0)); then
    say "building build/$preset failed"
    return "$status"
  fi
  say "build/$preset is built ($(seconds_since "$started") s)"
}

# build_program TARGET...: the program of this machine's configuration, step 4 of set-up.
build_program() {
  local preset
  preset="$(main_preset)"
  write_wrapper
  [[ -x "$ROOT/build/$preset/harness/sparfuse" ]] ||
    say "step 4 of 4: the program, about 4 min on two cores (with CUDA 8)"
  build "$preset" "$@"
}
