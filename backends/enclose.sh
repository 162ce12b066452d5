# Makes a machine that is there for one slot alone into a sandbox: runs as root in process and mount namespaces of its
# own, prepares what the slot's user can write, and becomes the warden as that user.
#
# $1: the workspace; $2: the user's number. Then the command.

set -e
workspace=$1 user=$2
shift 2
mkdir -p "$workspace" /home/agent /run/lachesis /dev/shm /tmp
mount -t tmpfs -o "size=16m,mode=700,uid=$user,gid=$user" tmpfs /run/lachesis
chown "$user:$user" "$workspace" /home/agent
chmod 1777 /tmp /dev/shm
cd "$workspace"
export HOME=/home/agent USER=agent LANG=C.UTF-8 TERM=dumb
unset LC_ALL
exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
