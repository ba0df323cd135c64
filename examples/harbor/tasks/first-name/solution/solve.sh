#!/bin/sh
head -n 1 names.txt > first.txt
