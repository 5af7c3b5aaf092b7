#!/bin/bash
# init.sh - pid 1 of a User-Mode-Linux machine of the stage (see machine.go, which starts it).
# Runs twice: on the read-only host file system, then, after the pivot, on a memory overlay above it.
# The kernel hands the stage_* boot arguments over as environment variables.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
modules=$stage_modules/$(uname -r)

if [ "${1:-}" != stage2 ]; then
    mount -t proc proc /proc
    insmod "$modules/kernel/fs/overlayfs/overlay.ko"
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/up /run/work /run/new
    mount -t overlay -o lowerdir=/,upperdir=/run/up,workdir=/run/work overlay /run/new
    cd /run/new && mkdir -p run/oldroot && pivot_root . run/oldroot
    exec chroot . /bin/bash "$0" stage2
fi

umount -l /run/oldroot                  # the overlay keeps its own hold on both layers
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /x /mnt /run/control /lib/modules
mount -t hostfs -o "$stage_dir/x" hostfs /x                   # Guest.Shared
mount -t hostfs -o "$stage_dir/control" hostfs /run/control   # requests and answers, see below
ln -sfn "$modules" "/lib/modules/$(uname -r)"               # for modprobe
echo nameserver 127.0.0.1 >/etc/resolv.conf                 # look-ups fail at once: else the first mount hangs 20 s

# The NFSv4.1 client names itself to servers by host name: machines of one name would steal each other's leases.
hostname "$stage_name"
ip link set lo up
[ -e "/run/control/boot" ] && . /run/control/boot >/run/control/boot.out 2>&1

# A script to run is a file ID.cmd, of ids that count from 1. It leaves ID.out, ID.err and, last and with its newline at the end, ID.rc.
# Other requests are lines on ttyS0: "kill ID SIGNAL", "poweroff"; "look" only wakes this shell, which looks for scripts each second anyway:
# now and then a busy machine does not notice a line (seen: for minutes). Spawns cost 30 ms and more here, so there are few: a run is
# this shell's background job, which has a process group of its own (set -m), and one bash in it.
serve() {
    trap : HUP INT QUIT TERM USR1 USR2      # meant for the script; this shell lives on to tell its end
    cd /root
    /bin/bash "/run/control/$1.cmd" </dev/null >"/run/control/$1.out" 2>"/run/control/$1.err"
    echo $? >"/run/control/$1.rc"
}
declare -A job
exec 3<>/dev/ttyS0
stty -echo <&3
set -m
: >/run/control/ready
next=1
while :; do
    verb=
    read -t 1 -r verb id signal <&3
    got=$?
    [ $got -eq 0 ] || [ $got -gt 128 ] || break     # >128: nothing came
    while [ -e "/run/control/$next.cmd" ]; do
        serve "$next" 3<&- &
        job[$next]=$!
        next=$((next + 1))
    done
    case $verb in
    kill)
        [ -n "${job[$id]}" ] && [ ! -e "/run/control/$id.rc" ] || continue
        kill -s "$signal" -- "-${job[$id]}"
        [ "$signal" = KILL ] && echo 137 >"/run/control/$id.rc" ;;
    poweroff) break ;;
    esac
done
timeout 5 umount -a -f -t nfs,nfs4
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done               # pid 1 must not exit before the power goes
