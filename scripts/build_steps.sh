# Steps that the commands in scripts/ share: saying what is done, finding the CUDA toolkit, set-up,
# and configuring and building a preset. Sourced by bash scripts that set ROOT to the checkout.
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

# Prints the CUDA compiler if a toolkit of version 13 or newer is here and SPARFUSE_CUDA is not OFF.
# configure tells CMake, which by itself would take the first nvcc that it finds, of any version.
cuda_compiler() {
  local nvcc major
  [[ "${SPARFUSE_CUDA:-AUTO}" != OFF ]] || return 0
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

# Prints why no CUDA card can be used here with CUDA 13, or nothing if one can: the driver's answer,
# which respects CUDA_VISIBLE_DEVICES and needs nothing of ours.
why_no_gpu() {
  python3 - <<'END'
import ctypes

def why():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "libcuda.so.1 is not found: no NVIDIA driver"
    count, text = ctypes.c_int(0), ctypes.c_char_p()
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status:
        cuda.cuGetErrorString(status, ctypes.byref(text))
        return f"the driver answers: {(text.value or b'an unknown error').decode()} ({status})"
    if not count.value:
        return "the driver knows no card"
    version = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if version.value < 13000:
        return (f"the driver serves CUDA up to {version.value // 1000}.{version.value % 1000 // 10}; "
                "CUDA 13 needs driver 580 or newer")
    return ""

print(why())
END
}

# Ends with status 2 unless there are a card and what compiles for it.
require_gpu() {
  local reason
  reason="$(why_no_gpu)"
  [[ -z "$reason" ]] || die 2 "--gpu needs a CUDA card: $reason"
  [[ "$(main_preset)" == release ]] || die 2 "--gpu does not go with SPARFUSE_CUDA=OFF"
  [[ -n "$(cuda_compiler)" ]] || die 2 "--gpu needs a CUDA toolkit of version 13 or newer (nvcc)"
}

# Ends with status 2 unless build/release is one with CUDA.
require_cuda_build() {
  grep -q -- -DSPARFUSE_CUDA "$ROOT/build/release/build.ninja" ||
    die 2 "build/release was configured without CUDA:" \
      "$(grep 'sparfuse: built without CUDA' "$STATE/configure-release.log" || true)"
}

# The preset that the commands build: `cpu` where the environment says SPARFUSE_CUDA=OFF.
main_preset() { if [[ "${SPARFUSE_CUDA:-AUTO}" == OFF ]]; then echo cpu; else echo release; fi; }

# The two below return a status and do not rely on errexit, which is off where a caller tests it.

# configure PRESET: runs cmake only where ninja would not do it by itself: the first time, after an
# interrupted configuration, and when the presets or the toolchain have changed.
configure() {
  local preset="$1" folder="$ROOT/build/$1" nvcc key
  nvcc="$(cuda_compiler)"
  key="$( { cat "$ROOT/CMakePresets.json" "$VENV/.sparfuse-setup"; echo "$nvcc"; g++ --version; } |
    sha256sum)"
  if [[ -f "$folder/build.ninja" && "$(cat "$folder/.configured" 2>/dev/null)" == "$key" ]]; then
    return 0
  fi
  mkdir -p "$folder"
  rm -f "$folder/.configured"
  run_logged "configuring build/$preset" "configure-$preset.log" \
    env -C "$ROOT" ${nvcc:+"CUDACXX=$nvcc"} "$VENV/bin/cmake" --fresh --preset "$preset" || return
  grep -E 'sparfuse: ' "$STATE/configure-$preset.log" | sed 's/^-- sparfuse/   build/' >&2 || true
  printf '%s' "$key" >"$folder/.configured"
}

# Reads ninja's output: passes on what is not progress, and says now and then how far it is.
show_progress() {
  awk -v name="${0##*/}" -v folder="$1" '
    /^\[[0-9]+\/[0-9]+\] Re-/ { next }   # CMake looking for new files
    match($0, /^\[[0-9]+\/[0-9]+\]/) {
      split(substr($0, 2, RLENGTH - 2), part, "/")
      tenth = int(10 * part[1] / part[2])
      if (part[2] > 1 && (!started || tenth > shown)) {
        printf "%s: building %s: %d of %d\n", name, folder, part[1], part[2]
        started = 1
        shown = tenth
      }
      fflush()
      next
    }
    /^ninja: (Entering|no work)/ { next }
    { print; fflush() }' >&2
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
  if [[ -t 2 ]]; then
    "${ninja[@]}" >&2 9>&- || status=$?
  else
    { "${ninja[@]}" 2>&1 | tee "$STATE/build-$preset.log" | show_progress "build/$preset"; } 9>&- ||
      status=$?
  fi
  drop_lock
  if ((status != 0)); then
    say "building build/$preset failed"
    return "$status"
  fi
  say "build/$preset is up to date ($(seconds_since "$started") s)"
}
