#!/bin/sh
sort words.txt > sorted.txt
