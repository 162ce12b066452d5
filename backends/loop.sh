# A persistent shell: reads commands, evaluates them in this very process, reports their exit codes.
#
# 200: requests; 201, 202: output; 203: the side channel, which no command inherits. A request is
# "KEY STDIN MARKS TOKEN\0CODE\0[bytes that the code reads from its stdin]NONCE\0". The nonce is read only after the
# code has run, so nothing the code prints or inherits can forge the end. Each command runs in a loop of one round,
# which contains a stray `break` or `continue`; a function would too, but would make every `declare` local.

exec 199<&-
__files=$1 __snapshot=$2 __status=0
set -- # the commands' own positional parameters
builtin unset __program
[[ ! -s $__snapshot ]] || builtin source "$__snapshot"
__return() { return "$1"; }
builtin printf '\n%s ready %d %d\n' "$__key" "$$" "$PPID" >&203
while IFS=' ' builtin read -r -d '' -u 200 __word __stdin __marks __token; do
    [[ $__word == "$__key" ]] || continue
    IFS= builtin read -r -d '' -u 200 __code
    [[ $__stdin == none ]] && __stdin=/dev/null || __stdin=/proc/self/fd/200
    builtin read -r _ _ _ _ __last </proc/loadavg # ends in the newest process id, to tell new processes by
    builtin printf '%s %s' "$__token" "$__last" >|"$__files.start"
    for __word in run; do
        __return "$__status"
        builtin eval "$__code" 0<"$__stdin" 1>&201 2>&202 200<&- 201>&- 202>&- 203>&-
    done
    __status=$?
    IFS= builtin read -r -d '' -u 200 __word
    if [[ $__marks == marks ]]; then # again and again: a command may have left a full pipe non-blocking
        until builtin printf %s "$__word" >&201; do :; done
        until builtin printf %s "$__word" >&202; do :; done
    fi
    builtin kill -0 "$PPID" && __kept=kept || __kept=orphaned
    builtin printf '\n%s end %d %s\n' "$__word" "$__status" "$__kept" >&203
    [[ -z $__snapshot ]] || {
        builtin printf 'builtin cd -- %q\n' "$PWD"
        builtin export -p
    } >|"$__snapshot"
done
builtin kill -KILL "$PPID" # the stream has ended: the harness closed this shell
