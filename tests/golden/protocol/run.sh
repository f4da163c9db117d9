#!/bin/sh
# Writes golden-<release>.jsonl: run.sh RELEASE CLASSPATH (see README.md)
set -e
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
javac -nowarn -encoding UTF-8 -cp "$2" -d "$out" Golden.java
java -Duser.timezone=UTC -Dfile.encoding=UTF-8 -cp "$out:$2" Golden "$1" > "golden-$1.jsonl"
