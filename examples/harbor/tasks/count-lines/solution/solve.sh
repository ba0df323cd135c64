#!/bin/sh
wc -l < notes.txt > answer.txt
