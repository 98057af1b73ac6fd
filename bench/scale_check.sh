#!/bin/sh
# How rates grow with reactors, on a machine with many cores.
#   bench/scale_check.sh pack BIN FILE   archives what a machine without Starling's packages needs: programs of the
#                                        folder BIN, their libraries except the C library, scripts
#   tar -xf FILE && starling-scale/scale_check.sh run [OUT]
#                                        measures there (some four minutes); reports as JSON in OUT
# It needs io_uring, a C library as new as that of the machine that has built it, and python3.
set -eu

pack() {
    folder=$(mktemp -d)
    to=$folder/starling-scale
    mkdir -p "$to/bin" "$to/lib" "$to/share/starling-bench"
    cp "$0" "$to/scale_check.sh"
    cp "$(dirname "$0")"/*.py "$to/share/starling-bench/"
    for program in starling-bench starling-ps; do
        strip -o "$to/bin/$program" "$1/$program"
        ldd "$1/$program" | awk '$3 ~ /^\// { print $3 }'
    done | sort -u | grep -v -E '/(libc|libm|libpthread|libdl|librt|libgcc_s)\.so' | xargs cp -L -t "$to/lib"
    tar -cJf "$2" -C "$folder" starling-scale
    rm -r "$folder"
}

run() {
    here=$(cd "$(dirname "$0")" && pwd)
    bench=$here/bin/starling-bench
    out=${1:-$here}
    cores=$(nproc)
    mkdir -p "$out"
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    ulimit -n "$(ulimit -H -n)"
    uname -r
    # Requests from sockets, a client thread for each reactor as long as there are cores; 1, 2, 4, ... reactors.
    "$bench" scale --connections 16,128 --rounds 3 --seconds 0.5 --json "$out/scale.json"
    "$bench" scale --keys 100 --connections 16 --rounds 3 --seconds 0.5 --json "$out/scale-100.json"
    # Worker processes, eight to a reactor; then with twice as many cores for them.
    for each in 1 2; do
        reactors=1
        while [ $((reactors * (1 + each))) -le "$cores" ]; do
            "$bench" workers --reactors "$reactors" --workers $((8 * reactors)) --client-core "$reactors" \
                --worker-cores $((reactors * each)) --rounds 3 --seconds 1 --json "$out/workers-$reactors-$each.json"
            reactors=$((reactors < 2 ? 2 : reactors + 2))
        done
    done
    # Many workers of one reactor.
    "$bench" workers --workers 1,8,64,200 --worker-cores $((cores - 1)) --rounds 3 --seconds 1 --json "$out/one.json"
}

case "${1:-}" in
pack) pack "$2" "$3" ;;
run) run "${2:-}" ;;
*) sed -n '2,7p' "$0" ;;
esac
