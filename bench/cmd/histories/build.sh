#!/bin/sh
# build.sh OUT [CHECKOUT] builds the program of this directory as OUT, with the root package of
# another checkout if one is given. Hashes of keys are the same in each process: the package
# hash/maphash gets a constant in place of its random numbers.
set -eu
out=$(realpath -m "$1")
here=$(realpath "$(dirname "$0")")
checkout=$(realpath "${2:-$here/../../..}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
maphash=$(go env GOROOT)/src/hash/maphash
sed -e '/^\/\/go:build purego/d' -e '/"crypto\/rand"/d' \
	-e 's/_, _ = rand.Read(buf)/copy(buf, "constant")/' "$maphash/maphash_purego.go" >"$work/maphash.go"
printf '{"Replace": {"%s": "%s"}}\n' "$maphash/maphash_runtime.go" "$work/maphash.go" >"$work/overlay.json"
printf 'go 1.25.0\n\nuse (\n\t%s\n\t%s\n)\n' "$checkout" "$(realpath "$here/../..")" >"$work/go.work"
GOWORK=$work/go.work go build -C "$here" ${COVER:+-cover -coverpkg=.,github.com/ratelimit-go/ratelimit} \
	-overlay "$work/overlay.json" -o "$out" .
