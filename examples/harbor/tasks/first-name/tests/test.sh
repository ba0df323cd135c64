#!/bin/sh
# Runs in a new copy of the environment, which has of the agent's files the artifacts alone.
if [ "$(cat /app/first.txt)" = "$(head -n 1 /app/names.txt)" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
