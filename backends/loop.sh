# A persistent shell: reads commands, evaluates them in this very process, reports their exit codes.
#
# 0: requests; 1: the side channel; 91, 92: where a command's output goes; 93: an empty input. No command inherits
# them: 0, 1 and 2 are redirected while it runs, the others are close-on-exec. A request is a size in ten digits, two
# flags, the code, the bytes that the code reads from its stdin, if any, and a nonce. Flags are s where there are such
# bytes, and m where the end must be marked in the outputs. Sizes make a request three reads; up to a delimiter, bash
# would read byte by byte. The nonce is read only after the code has run, so nothing the code prints or inherits can
# forge the end. Each command runs in a loop of one round, which contains a stray `break` or `continue`; a function
# would too, but would make every `declare` local. One that leaves more loops than it is in comes to the next round of
# ours, where the end is reported, or ends the shell as `exit` would. Between commands, once the answer is on its way,
# the shell writes down what it needs if it has to be replaced, and the newest process id, to tell by which processes a
# later command started.

__key=$1.$$ __file=$2 __keep=$3 __word= __busy=
set -- # the commands' own positional parameters
builtin unset __program
# Bash saves what it closes for a command in descriptors from 10 on, close-on-exec; a copy of such a one is so as well.
{ exec 91>&10 92>&11 93<&12; } 94>&- 95>&- 96<&-
exec 94>&- 95>&- 96<&-
[[ -z $__keep || ! -s $__file ]] || builtin source "$__file" >/dev/null
__return() { return "$1"; }
builtin printf '\r%s ready %d %d\n' "${__key%.*}" "$$" "$PPID"
until [[ $__word == "$__key" ]]; do # skips what is left of the input of a command that was killed
    IFS= builtin read -r -d '' __word || (($? > 128)) || break
done
while __status=$?; do
    if [[ $__busy ]]; then
        __busy=
        builtin read -r -N 12 __word
        if [[ $__mark ]]; then # again and again: a command may have left a full pipe non-blocking
            until builtin printf %s "$__word" >&91; do :; done
            until builtin printf %s "$__word" >&92; do :; done
        fi
        builtin kill -0 "$PPID" && __kept=kept || __kept=orphaned
        builtin printf '\r%s end %d %s\n' "$__word" "$__status" "$__kept"
    fi
    builtin read -r _ _ _ _ __last </proc/loadavg
    [[ -f $__file || ! -e $__file ]] || builtin command rm -rf -- "$__file" # the agent may have put a pipe there
    {
        builtin printf ': %s\n' "$__last"
        [[ -z $__keep ]] || {
            builtin printf 'builtin cd -- %q\n' "$PWD"
            builtin export -p
        }
    } >|"$__file"
    until builtin read -r -N 12 __word; do # the agent's TMOUT may end it early
        (($? > 128)) || break 2
    done
    [[ $__word == *s* ]] && __input=0 || __input=93
    [[ $__word == *m ]] && __mark=1 || __mark=
    builtin read -r -N "${__word:0:10}" __code
    __busy=1
    for __word in run; do
        [[ $__status == 0 ]] || __return "$__status"
        builtin eval "$__code" 0<&"$__input" 1>&91 2>&92
    done
done
[[ -z $__busy ]] || builtin exit 0 # the command's own `break 3` has ended our loop
builtin kill -KILL "$PPID" # the stream has ended: the harness closed this shell
