# Keeps one shell of a sandbox: holds its streams, starts it, and starts it again when it ends.
#
# $1 is the shell's name, $2 the folder of its file where it is not the agent's; 0, 1 and 2 are its streams, 3 is the
# side channel. The first records on stdin are the program of the shell and its key: what does not carry the key is no
# request, so that the rest of an input whose reader was killed can't be taken for one.

exec 200<&0 201>&1 202>&2 203>&3 0</dev/null 1>/dev/null 2>/dev/null 3>&-
read -r -N 5 -u 200 size
read -r -N "$size" -u 200 loop
read -r -N 12 -u 200 key || exit
[[ ! -p /dev/fd/200 ]] || exec 200</dev/fd/200   # only reads: what it could write would be taken for requests
bootstrap='builtin read -r -N "$1" -u 199 __program; shift; exec 199<&-; builtin eval "$__program"'
file=${2:-/run/lachesis}/$1.env keep=keep
[[ $1 != control && -z $2 ]] || keep=            # the harness's shells must not read back what others may write
export LACHESIS_SHELL=$1
trap : HUP INT QUIT TERM                         # a handler, unlike ignoring, is not inherited by the shell

start_shell() { # how to execute it
    exec "$@" bash --noprofile --norc -c "$bootstrap" bash "${#loop}" "$key" "$file" "$keep" \
        0<&200 1>&203 94>&201 95>&202 96</dev/null 199<<<"$loop" 200<&- 201>&- 202>&- 203>&-
}

while :; do
    [[ $keep && -s $file ]] && clean=-c || clean=
    (start_shell $clean)
    printf '\r%s exit %d\n' "$key" "$?" >&203
done
