# Prepares a private mount namespace and becomes the command that starts bubblewrap in it.
#
# $1: options of the tmpfs that holds all a sandbox can write, so that one size bounds its bytes and one count its
# inodes, and that vanishes with the namespace; $2: its user; $3: the control group that the sandbox's shells join by
# descriptor 7, if any; $4: the folder over which root has to lay the workspace, if any: see overlays.py. Then host
# directories to pass through, "--", and the command, which finds the sandbox's own files of /etc on descriptors 4 to 6.
# The tmpfs covers /sys, which nobody needs here. Bubblewrap alone can neither bound inodes nor, where the harness is
# root and the sandbox is not, bind what only root can reach. Every program started costs a millisecond of a cold start,
# and every mount of bubblewrap's a tenth: so there are few, and programs run side by side.

set -e
echo 1000 >/proc/self/oom_score_adj # when memory runs out, the kernel takes the sandbox first
exec 4<<passwd 5<<group 6<<hosts
root:x:0:0::/:/bin/false
agent:x:1000:1000::/home/agent:/bin/bash
passwd
root:x:0:
agent:x:1000:
group
127.0.0.1 localhost sandbox
::1 localhost
hosts
[ -z "$3" ] || exec 7>"$3/cgroup.procs"
mount -t tmpfs -o "$1" tmpfs /sys
user=$2 below=$4
shift 4
install -d -o "$user" -g "$user" /sys/workspace /sys/upper /sys/overlay /sys/tmp /sys/home /sys/shm &
count=0
while [ "$1" != -- ]; do
    mount -o rbind,X-mount.mkdir "$1" "/sys/host$count"
    count=$((count + 1))
    shift
done
shift
wait $!
if [ -n "$below" ]; then
    options=upperdir=/sys/upper,workdir=/sys/overlay,metacopy=on
    (cd "$below" && exec mount -t overlay -o "lowerdir=.,$options" overlay /sys/workspace)
    chown -hR "$user:$user" /sys/workspace
fi
exec "$@"
