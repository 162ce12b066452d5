# A persistent shell: reads commands, evaluates them in this very process, reports their exit codes.
#
# 200: requests; 201, 202: output; 203: the side channel, which no command inherits. A request is
# "KEY.PID FLAGS\0CODE\0[bytes that the code reads from its stdin]NONCE\0"; flags are s where there are such bytes and
# m where the end must be marked in the outputs. The nonce is read only after the code has run, so nothing the code
# prints or inherits can forge the end. Each command runs in a loop of one round, which contains a stray `break` or
# `continue`; a function would too, but would make every `declare` local. Between commands, once the answer is on its
# way, the shell writes down what it needs if it has to be replaced, and the newest process id, to tell by which
# processes a later command started.

exec 199<&-
__key=$__key.$$ __file=$1 __keep=$2 __status=0
set -- # the commands' own positional parameters
builtin unset __program
[[ -z $__keep || ! -s $__file ]] || builtin source "$__file"
__return() { return "$1"; }
builtin printf '\n%s ready %d %d\n' "${__key%.*}" "$$" "$PPID" >&203
while :; do
    builtin read -r _ _ _ _ __last </proc/loadavg
    {
        builtin printf ': %s\n' "$__last"
        [[ -z $__keep ]] || {
            builtin printf 'builtin cd -- %q\n' "$PWD"
            builtin export -p
        }
    } >|"$__file"
    until [[ $__word == "$__key" ]]; do # skips what is left of the input of a command that was killed
        IFS=' ' builtin read -r -d '' -u 200 __word __flags || break 2
    done
    IFS= builtin read -r -d '' -u 200 __code
    [[ $__flags == *s* ]] && __stdin=/proc/self/fd/200 || __stdin=/dev/null
    for __word in run; do
        __return "$__status"
        builtin eval "$__code" 0<"$__stdin" 1>&201 2>&202 200<&- 201>&- 202>&- 203>&-
    done
    __status=$?
    IFS= builtin read -r -d '' -u 200 __word
    if [[ $__flags == *m* ]]; then # again and again: a command may have left a full pipe non-blocking
        until builtin printf %s "$__word" >&201; do :; done
        until builtin printf %s "$__word" >&202; do :; done
    fi
    builtin kill -0 "$PPID" && __kept=kept || __kept=orphaned
    builtin printf '\n%s end %d %s\n' "$__word" "$__status" "$__kept" >&203
done
builtin kill -KILL "$PPID" # the stream has ended: the harness closed this shell
