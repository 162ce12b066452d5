# Prepares a `bubblewrap.Job` on a host that is reached by a shell, and becomes its command. `launch.py` does so on ours.
#
# $1: options of the tmpfs; $2: its user; $3 to $5: what is read from descriptors 4 to 6. Then the command.

set -e
echo 1000 >/proc/self/oom_score_adj # when memory runs out, the kernel takes the sandbox first
exec 4<<passwd 5<<group 6<<hosts
$3
passwd
$4
group
$5
hosts
mount -t tmpfs -o "$1" tmpfs /sys
install -d -o "$2" -g "$2" /sys/workspace /sys/upper /sys/overlay /sys/tmp /sys/home /sys/shm
shift 5
exec "$@"
