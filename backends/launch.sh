# Prepares a private mount namespace and becomes bubblewrap in it.
#
# $1: options of the tmpfs that holds all a sandbox can write, so that one size bounds its bytes and one count its
# inodes, and that vanishes with the namespace; $2: its user; $3: the control group to join, if any, which is done late:
# see memory_groups.py; $4: the folder over which root has to lay the workspace, if any: see overlays.py. Then host
# directories to pass through, "--", and the command. The tmpfs covers /sys, which nobody needs here. Bubblewrap alone
# can neither bound inodes nor, where the harness is root and the sandbox is not, bind what only root can reach. Every
# program started costs milliseconds of a cold start, so there are few, and they run side by side.

set -e
echo 1000 >/proc/self/oom_score_adj # when memory runs out, the kernel takes the sandbox first
[ -z "$3" ] || exec 4>"$3/cgroup.procs"
mount -t tmpfs -o "$1" tmpfs /sys
user=$2 group=$3 below=$4
shift 4
install -d -o "$user" -g "$user" /sys/workspace /sys/upper /sys/overlay /sys/tmp /sys/home /sys/shm &
printf 'root:x:0:0::/:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n' >/sys/passwd
printf 'root:x:0:\nagent:x:1000:\n' >/sys/group
printf '127.0.0.1 localhost sandbox\n::1 localhost\n' >/sys/hosts
count=0
while [ "$1" != -- ]; do
    mount -o rbind,X-mount.mkdir "$1" "/sys/host$count"
    count=$((count + 1))
    shift
done
shift
wait $!
[ -z "$group" ] || { echo 0 >&4; exec 4>&-; }
if [ -n "$below" ]; then
    options=upperdir=/sys/upper,workdir=/sys/overlay,metacopy=on
    (cd "$below" && exec mount -t overlay -o "lowerdir=.,$options" overlay /sys/workspace)
    chown -hR "$user:$user" /sys/workspace
fi
exec "$@"
