# Process 1 of a sandbox: starts shells, sweeps what a timed-out command left behind, and dies with the harness. For
# commands of another user there is another one, which can end what that user started and nothing else; it is not
# process 1, and keeps the shells' files in a folder of its own.
#
# stdin: requests "TOKEN VERB ARGUMENTS\0"; stdout: the side channel, lines "\rTOKEN ANSWER".
# It evaluates nothing the agent wrote, and as process 1 no signal from inside the sandbox can kill it. Sweeping
# uses builtins only, because a sandbox full of fork bombs has no process left to give. When stdin ends, the
# harness is gone: the shell exits, and the kernel kills everything else in the process namespace.

exec 3>&1 1>/dev/null 2>/dev/null

pause() { read -r -t 0.003 -u 9; }

say() { printf '\r%s\n' "$*" >&3; }

# Makes pipes under a name, unless that was done.
make_pipes() { # name path...
    local name=$1
    shift
    if [[ $unused == *" $name "* ]]; then unused=${unused/ $name / }; else mkfifo -m 600 "$@"; fi
}

# Starts a keeper on named pipes that the harness opens from outside and then removes. It joins the control group on
# descriptor 7, where the sandbox has one, and so does all it starts.
open_shell() { # name bootstrap
    local path=/run/lachesis/$1 bootstrap=$2
    make_pipes "$1" "$path.in" "$path.out" "$path.err" || return
    exec 4<>"$path.in" 5<>"$path.out" 6<>"$path.err" # opened for both ends: neither side has to wait for the other
    set -m # for otherwise what runs in the background, and all it starts, ignores interrupts
    (
        [[ ! -e /dev/fd/7 ]] || echo 0 >&7 || exit
        exec 7>&-
        set -- "$1"
        eval "$bootstrap"
    ) 0<&4 1>&5 2>&6 4<&- 5<&- 6<&- 9<&- & # a fork of this very shell: executing bash takes longer
    set +m
    exec 4<&- 5<&- 6<&-
}

# Fills parent[] and started[] (clock ticks since boot) for every live process of this user but this one.
scan() {
    local directory stat
    parent=() started=()
    for directory in /proc/[0-9]*; do
        stat=
        IFS= read -r -d '' stat <"$directory/stat"
        set -- ${stat##*) } # a process name may hold spaces, parentheses and newlines
        [[ -n $1 && $1 != [ZX] && ${directory#/proc/} != "$$" ]] || continue
        kill -0 "${directory#/proc/}" || continue
        parent[${directory#/proc/}]=$2 started[${directory#/proc/}]=${20}
    done
}

# Whether process $1 began after the command did. Ticks are coarse (10 ms), and the request to sweep, which tells how
# long ago that was, may have taken its time on a busy host: near the start, and up to two seconds before it, process
# ids decide, which only grow within such a short time, save for one wrap.
is_new() {
    local age=$((started[$1] - born)) later=$((($1 - last + pid_max) % pid_max))
    ((age > 5 || (age >= -200 && later > 0 && later < pid_max / 2)))
}

# Whether process $1 was started by the swept shell's command. A daemon has lost its parents; then its environment
# tells whose it is, and one that hides its environment is taken for the command's.
is_doomed() {
    local ancestor=$1 variable
    is_new "$1" || return
    while :; do
        ancestor=${parent[$ancestor]:-1}
        case $ancestor in
        0) return 1 ;; # came in from outside the sandbox
        1) break ;;
        "$shell") return 0 ;;
        esac
        [[ $spared != *" $ancestor "* ]] || return 1
        [[ -z ${parent[$ancestor]} ]] || is_new "$ancestor" || return 1
    done
    [[ $spared != *" $1 "* ]] || return 1
    while IFS= read -r -d '' variable; do
        [[ $variable == LACHESIS_SHELL=* ]] || continue
        [[ $variable == "LACHESIS_SHELL=$name" ]]
        return
    done <"/proc/$1/environ"
    return 0
}

# Kills a shell and everything its running command started, and looks again until nothing is left. What breeds
# faster than that is ended with all the rest of the sandbox, in one system call that no fork can outrun.
sweep() { # name shell elapsed_ticks spared...
    local name=$1 shell=$2 elapsed=$3 last spared now born doomed process fresh round broods=0
    local -a parent started seen
    shift 3
    spared=" $* "
    read -r now _ </proc/uptime
    born=$((10#${now/./} - elapsed))
    read -r -t 0.5 -n 40 _ last 0<>"$folder/$name.env" # whatever the agent may have put there
    [[ $last =~ ^[0-9]+$ ]] || last=0
    kill -KILL "$shell"
    for ((round = 0; round < 600 && broods < 8; round++)); do
        scan
        doomed=() fresh=0
        for process in "${!parent[@]}"; do
            [[ $process == "$shell" ]] || is_doomed "$process" || continue
            doomed+=("$process")
            [[ ${seen[process]} ]] || ((fresh++))
            seen[process]=1
        done
        ((${#doomed[@]})) || return 0
        ((broods += fresh > 50 ? 4 : fresh > 0))
        kill -KILL "${doomed[@]}"
        pause
    done
    end_all
}

# Kills every process but this one and waits until they are gone.
end_all() {
    local -a parent started
    while :; do
        kill -KILL -1
        scan
        ((${#parent[@]})) || return 1
        pause
    done
}

ulimit -c 0
folder=/run/lachesis unused=
if (($$ == 1)); then # one program makes the pipes of the side channel and of the first shells, beside the rest
    mkfifo -m 600 "$folder"/{side,{control,main}.{in,out,err}} &
    making_pipes=$!
else
    folder=$(mktemp -d /dev/shm/.lachesis-XXXXXXXXXX) || exit
fi
for limit in "$@"; do ulimit ${limit/=/ }; done
say - up "$$" "$UID" "$folder" # the harness prepares its next request while we go on
exec 9<> <(:) # nothing ever arrives here: `read -t` on it sleeps without a process, and the fork starts reaping
[[ -z $making_pipes ]] || ! wait "$making_pipes" || unused=' side control main '
read -r pid_max </proc/sys/kernel/pid_max
while IFS=' ' read -r -d '' token verb arguments; do
    case $verb in
    ping) say "$token" pong ;;
    open)
        IFS= read -r -d '' bootstrap
        if open_shell "$arguments" "$bootstrap"; then say "$token" opened; else say "$token" failed; fi
        ;;
    side) # from now on answers go through a pipe, past whatever relays stdout
        make_pipes side /run/lachesis/side && exec 8<>/run/lachesis/side
        say "$token" moved
        exec 3>&8 8>&-
        ;;
    sweep) if sweep $arguments; then say "$token" swept; else say "$token" cleared; fi ;;
    clear)
        end_all
        say "$token" cleared
        ;;
    esac
done
