#!/bin/sh
printf 'tick 1\ntick 2\ntick 3\n' > /tmp/expected
if cmp -s /tmp/expected /app/three.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
