#!/bin/sh
# A document shows a file as it is, and the file is shorter than that many lines. quoted.sh FILE DOCUMENT LINES
set -eu
file=$1 document=$2 most=$3
lines=$(wc -l <"$file")
[ "$lines" -lt "$most" ] || {
    echo "$file has $lines lines; the promise is less than $most" >&2
    exit 1
}
name=$(basename "$file")
awk -v begin="<!-- $name -->" '$0 == begin { found = 1; next } found && /^```/ { if (inside) exit; inside = 1; next }
    inside { print }' "$document" | diff -u "$file" - || {
    echo "$document does not show $name as it is" >&2
    exit 1
}
