#!/bin/sh
# A node on Linux and one under wine run one job together over tcp, in both roles; the picture is the same.
# together.sh LINUX_TOOL WINDOWS_TOOL FOLDER; NRDMA_RUNNER starts the second.
set -eu
linux=$1 windows=$2 folder=$3
rm -rf "$folder"
mkdir -p "$folder"
# The two have no cookie in common.
NRDMA_AUTH_TOKEN_FILE=$folder/token
(umask 077 && "$linux" token >"$NRDMA_AUTH_TOKEN_FILE")
export NRDMA_AUTH_TOKEN_FILE
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# meet NAME SERVER... -- DEMO...
meet() {
    name=$1 serve=$2 demo=$3
    $serve serve 127.0.0.1:0 --transport tcp --threads 2 >"$folder/$name.address" &
    server=$!
    tries=0
    until [ -s "$folder/$name.address" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "$name: the server does not say where it is"
        sleep 0.1
    done
    address=$(tr -d '\r\n' <"$folder/$name.address")
    summary=$($demo demo --hosts 0 --connect "$address" --transport tcp --size 640x360 --tile 128 --out "$folder/$name.png")
    kill "$server" 2>/dev/null || :
    wait "$server" 2>/dev/null || :
    server=
    echo "$summary"
    echo "$summary" | grep -q 'verified: all [0-9]* tiles equal' || fail "$name: the picture was not verified"
}

meet linux_serves "$linux" "${NRDMA_RUNNER:-} $windows"
meet windows_serves "${NRDMA_RUNNER:-} $windows" "$linux"
cmp "$folder/linux_serves.png" "$folder/windows_serves.png" || fail "the pictures differ"
