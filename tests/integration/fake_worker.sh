#!/bin/sh
# Stands in for sparfuse-worker: FAKE_MODE says how the trial ends, FAKE_SECONDS how long it takes.
rank=${OMPI_COMM_WORLD_RANK:-0}
sleep "${FAKE_SECONDS:-0}"
case "${FAKE_MODE:-ok}" in
  killed) if [ "$rank" = 1 ]; then kill -9 $$; else sleep 100; fi ;;
  data)
    echo "{\"kind\": \"data\", \"message\": \"digits.bin is truncated\", \"rank\": $rank}" \
      > "$1/failure-rank$rank.json"
    echo "rank $rank: no data" >&2
    exit 1 ;;
  silent) exit 0 ;;
esac
[ "$rank" = 0 ] || exit 0
check=true
[ "${FAKE_MODE:-ok}" = diverged ] && check=false
cat > "$1/outcome.json" <<END
{"status": "ok", "metrics": {"throughput": {"value": 100.5, "unit": "images/s"},
 "step_seconds": {"value": 0.25, "unit": "s"}}, "checks": {"replicas_equal": $check},
 "machine": {}, "software": {"fake": "1"}}
END
