#!/bin/sh
# One number in a text file: 1 or 0.
if [ "$(tr -d ' \n' < /app/answer.txt)" = "$(wc -l < /app/notes.txt | tr -d ' ')" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
