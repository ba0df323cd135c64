#!/bin/sh
ticks | head -n 3 > three.txt
