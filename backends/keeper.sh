# Keeps one shell of a sandbox: holds its streams, starts it, and starts it again when it ends.
#
# $1 is the shell's name; 0, 1 and 2 are its streams, 3 is the side channel. The first records on stdin are the
# program of the shell and its key: what does not carry the key is no request, so that the rest of an input whose
# reader was killed can't be taken for one.

exec 200<&0 201>&1 202>&2 203>&3 0</dev/null 1>/dev/null 2>/dev/null 3>&-
IFS= read -r -d '' -u 200 loop
IFS= read -r -d '' -u 200 key || exit
bootstrap='IFS= read -r -u 199 __key; IFS= read -r -d "" -u 199 __program; eval "$__program"'
file=/run/lachesis/$1.env keep=keep
[[ $1 != control ]] || keep=                     # the control shell must not read back what others may write
trap : HUP INT QUIT TERM                         # a handler, unlike ignoring, is not inherited by the shell
while :; do
    if [[ $keep && -s $file ]]; then
        (exec -c bash --noprofile --norc -c "$bootstrap" bash "$file" "$keep" 199<<<"$key"$'\n'"$loop")
    else
        bash --noprofile --norc -c "$bootstrap" bash "$file" "$keep" 199<<<"$key"$'\n'"$loop"
    fi
    printf '\n%s exit %d\n' "$key" "$?" >&203
done
