# SPDX-License-Identifier: Apache-2.0
#
# progress.sh - for scripts in bash: runs go commands, and shows one line that tells how far they
# are in place of all that they say. On a terminal the line is written over; elsewhere it comes
# again every 15 s. What a command said is shown in full when it fails.
#
#   progress_begin LABEL        begins a group of commands
#   progress_step TEXT          says what is being done now
#   progress_run COMMAND...     runs one, in a subshell; its exit code is the command's
#   progress_end                tells what the group was, and how long it took

progress_begin() {
    progress_label=$1 progress_text='' progress_start=$SECONDS
    progress_log=$(mktemp)
    # A subshell that is killed right after its start runs this trap too: the file is this shell's.
    trap '[ "$BASHPID" != $$ ] || rm -f "$progress_log"' EXIT
}

progress_step() { progress_text=$1; }

# `go build -v` says the name of each package that it compiles, alone on its line.
progress_line() {
    local modules packages text="$progress_label:"
    modules=$(grep -c '^go: downloading ' "$progress_log") || :
    packages=$(grep -c '^[^ :][^ :]*$' "$progress_log") || :
    [ -z "$1" ] || text+=" $1,"
    [ "$modules" = 0 ] || text+=" $modules modules downloaded,"
    [ "$packages" = 0 ] || text+=" $packages packages compiled,"
    echo "$text $((SECONDS - progress_start)) s"
}

progress_show() {
    if [ -t 2 ]; then # without wrapping: else a long line could not be written over
        printf '\r\033[K\033[?7l%s\033[?7h' "$(progress_line "$progress_text")" >&2
    elif [ $((++progress_ticks % 15)) = 0 ]; then
        progress_line "$progress_text" >&2
    fi
}

progress_run() {
    local rc=0 ticker
    # The ticker ends when this script was killed.
    (
        progress_ticks=$((SECONDS - progress_start))
        while kill -0 $$ 2>/dev/null; do
            progress_show
            sleep 1
        done
    ) 9>&- &
    ticker=$!
    ("$@") </dev/null >>"$progress_log" 2>&1 || rc=$?
    kill $ticker 2>/dev/null || :
    wait $ticker 2>/dev/null || :
    [ ! -t 2 ] || printf '\r\033[K\033[?7h' >&2
    [ $rc = 0 ] || cat "$progress_log" >&2
    return $rc
}

progress_end() {
    progress_line done >&2
    rm -f "$progress_log"
}
