#!/usr/bin/env bash
# Trains a model and serves it meanwhile, on one machine: run by starling-launch as each worker of a job. Worker 0
# publishes a version every 2 s; it also runs a gateway and a worker of starling-serve, and predicts with each version.
#
#   starling-launch --ps 1 --workers 4 --objects --agents -- examples/train_and_serve.sh DATA [FLAG of starling-worker...]
#
# DATA has train.tsv and test.tsv in Criteo's format: starling-worker generate --out DATA makes them.
set -euo pipefail
data=$1 here=$(dirname "$(readlink -f "$0")")
shift
train=(starling-worker --data "$data/train.tsv" --test "$data/test.tsv" --format criteo --model deepfm --quiet
    --report "$data/report.json" "$@")
[ "$RANK" = 0 ] || exec "${train[@]}"

# start NAME COMMAND...: runs it, waits for the line that it prints when it is ready, and prints that.
start() {
    local name=$1
    shift
    exec {out}< <(exec "$@")
    pids+=("$!")
    read -r line <&"$out" || exit 1
    echo "$name: $line"
    address=${line%% *}
}
pids=()
trap 'kill "${pids[@]}"' EXIT
start gateway starling-serve gateway --http 127.0.0.1:0 --listen 127.0.0.1:0
url=$(grep -o 'http://[0-9.:]*' <<<"$line")
start worker starling-serve worker --gateway "$address"

"${train[@]}" --publish ctr --publish-every 2s &
while kill -0 "$!" 2>/dev/null; do
    python3 "$here/predict.py" "$url" ctr "$data/test.tsv" --rows 2000 || true
    sleep 2
done
wait "$!"
version=$(starling-objects ls ctr --json | python3 -c 'import json, sys; print(json.loads(sys.stdin.readlines()[-1])["version"])')
python3 "$here/predict.py" "$url" ctr "$data/test.tsv" --version "$version" --json >"$data/served.json"
