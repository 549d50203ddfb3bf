#!/bin/sh
# Stands in for sparfuse-worker, whose arguments are the directories of a launch's trials: FAKE_MODE
# says how they end, FAKE_SECONDS how long the launch takes. Trials of the method FAKE_GUILTY end
# their launch: with an error of their own, or (FAKE_MODE=dies) without a word in their turn.
rank=${OMPI_COMM_WORLD_RANK:-0}
sleep "${FAKE_SECONDS:-0}"
if [ -n "$SPARFUSE_PREFLIGHT" ]; then  # what a rank tells of its host, of which all are alike
  cat <<END
preflight: {"rank": ${OMPI_COMM_WORLD_RANK:-${FLUX_TASK_RANK:-0}}, "host": "${FAKE_HOST:-here}", "worker": "w", "mpi": "m", "libraries": {}, "cuda": null, "nccl": null, "driver": null, "cards": [], "cpu": "c", "cores": "0", "numa": "0", "visible_cards": null, "memlock_bytes": null, "shm_free_bytes": 1e9, "interfaces": ["eth0"], "rdma": false, "sees_results": true}
END
  exit 0
fi
fail() {
  echo "{\"kind\": \"data\", \"message\": \"digits.bin is truncated\", \"rank\": $rank}" \
    > "$1/failure-rank$rank.json"
  echo "rank $rank: no data" >&2
}
case "${FAKE_MODE:-ok}" in
  killed) if [ "$rank" = 1 ]; then kill -9 $$; else sleep 100; fi ;;
  data)
    for directory; do fail "$directory"; done
    exit 1 ;;
  silent) exit 0 ;;
  loud)  # a line of megabytes in the launcher's words
    printf 'process rank 0 '
    head -c 3000000 /dev/zero | tr '\0' x
    printf '\nno library\n'
    exit 127 ;;
esac
[ "$rank" = 0 ] || exit 0
check=true
[ "${FAKE_MODE:-ok}" = diverged ] && check=false
quiet=null
[ "${FAKE_MODE:-ok}" = disturbed ] &&
  quiet='{"other_cpu": 0.5, "stolen": 0, "resolution": 0.01, "seconds": 1, "cores": 2, "quota": null,
   "clock_mhz": [null, null], "load": [null, null], "pressure": null, "own_cpu_seconds": 0,
   "involuntary_switches": 0, "loop_seconds": [0.001], "cards": null}'
for directory; do
  if grep -q "\"method\": \"${FAKE_GUILTY:-nobody}\"" "$directory/config.json"; then
    touch "$directory/turn"
    [ "${FAKE_MODE:-ok}" = dies ] && kill -9 $$
    fail "$directory"
    exit 1
  fi
  cat > "$directory/outcome.json" <<END
{"status": "ok", "metrics": {"throughput": {"value": 100.5, "unit": "images/s"},
 "step_seconds": {"value": 0.25, "unit": "s"}}, "checks": {"replicas_equal": $check},
 "software": {"compiler": "fake", "cuda_build": ""}, "quiet": $quiet}
END
done
