#!/bin/sh
# A scheduler of files and background processes: a folder for each job, in the folder of this script.
#   submit LOG WORD...   prints the number of the job; while there is a file "hold", it waits
#   state NUMBER         waiting, running or unknown; fails while there is a file "away"
#   end NUMBER           sends SIGTERM, as most schedulers do first
queue=$(cd "$(dirname "$0")" && pwd)
verb=$1; shift
[ ! -e "$queue/away" ] || { echo "nobody answers" >&2; exit 1; }
case $verb in
submit)
    log=$1; shift
    number=1
    until mkdir "$queue/$number" 2>/dev/null; do number=$((number + 1)); done
    job=$queue/$number
    setsid sh -c 'job=$1 log=$2; shift 2
        while [ -e "$job/../hold" ] && [ ! -e "$job/ended" ]; do sleep 0.1; done
        [ -e "$job/ended" ] || { "$@" >>"$log" 2>&1 & echo $! >"$job/pid"; wait $!; }
        touch "$job/ended"' job "$job" "$log" "$@" >/dev/null 2>&1 </dev/null &
    echo "Your job $number (\"$USER\") has been submitted"
    ;;
state)
    if [ ! -d "$queue/$1" ] || [ -e "$queue/$1/ended" ]; then echo "job $1 is unknown"; exit 1
    elif [ -e "$queue/$1/pid" ]; then echo running
    else echo waiting; fi
    ;;
end)
    [ -e "$queue/$1/pid" ] && kill "$(cat "$queue/$1/pid")" || touch "$queue/$1/ended"
    ;;
esac
