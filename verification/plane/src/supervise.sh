# Runs "$@" and takes it down when the parent is gone, however the parent ended.
#
# Standard input is the lifeline: a pipe whose other end only the parent holds. It closes when the parent dies, be it by
# SIGKILL, and then the command gets SIGTERM, a short time to end, and SIGKILL. The line "kill" skips the first two.
# The parent starts this script as the leader of a process group of its own, so that Ctrl-C does not reach the command,
# and so that the group can be signalled as a whole: nothing that the command started stays behind either.
exec 3<&0 </dev/null
"$@" 3<&- &
child=$!
(
    word=
    read -r word <&3
    if [ "$word" != kill ]; then
        kill -TERM "$child"
        left=60
        while [ "$left" -gt 0 ] && kill -0 "$child"; do
            sleep 0.05
            left=$((left - 1))
        done
    fi
    kill -KILL "$child"
    # Reached only if the shell that waits for the command was killed itself.
    sleep 1
    kill -KILL "-$$"
) 2>/dev/null &
wait "$child"
code=$?
# Ends the watcher above and whatever the command left behind: politely if the command ended so.
[ "$code" -eq 137 ] && kill -KILL "-$$"
trap '' TERM
kill -TERM "-$$"
exit "$code"
