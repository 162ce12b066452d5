# Prepares a private mount namespace and becomes bubblewrap in it.
#
# $1: options of the tmpfs that holds all a sandbox can write, so that one size bounds its bytes and one count its
# inodes, and that vanishes with the namespace. Then host directories to pass through, "--", and the command. The
# tmpfs covers /sys, which nobody needs here. Bubblewrap alone can neither bound inodes nor, where the harness is
# root and the sandbox is not, bind what only root can reach.

set -e
echo 1000 >/proc/self/oom_score_adj # when memory runs out, the kernel takes the sandbox first
mount -t tmpfs -o "$1" tmpfs /sys
shift
mkdir -p /sys/data/workspace /sys/data/tmp /sys/data/home /sys/data/shm /sys/etc /sys/host
printf 'root:x:0:0::/:/bin/false\nagent:x:1000:1000::/home/agent:/bin/bash\n' >/sys/etc/passwd
printf 'root:x:0:\nagent:x:1000:\n' >/sys/etc/group
printf '127.0.0.1 localhost sandbox\n::1 localhost\n' >/sys/etc/hosts
chown --reference=/sys /sys/data/*
chmod 1777 /sys/data/tmp /sys/data/shm
index=0
while [ "$1" != -- ]; do
    mkdir "/sys/host/$index"
    mount --rbind "$1" "/sys/host/$index"
    index=$((index + 1))
    shift
done
shift
exec "$@"
