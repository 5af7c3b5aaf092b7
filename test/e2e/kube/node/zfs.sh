# zfs.sh - gives a host node the commands of zfs-fuse and three disks (see zfs.go, which runs it).
# $1 is the folder of the disks' files, $2 what hack/fetch-zfs fetched.
set -euo pipefail
mkdir -p /etc/zfs /zfs-kstat /run/zfs /run/lock/zfs /run/disks /var/lib/zfs
mount -t tmpfs zfs /etc/zfs
mount -t tmpfs zfs /var/lib/zfs         # no list of pools: devices may have other numbers after a power cut
mount -t tmpfs tools /usr/local/sbin
libraries=$(printf '%s:' "$2"/lib/*-linux-gnu "$2"/usr/lib/*-linux-gnu)
for tool in zpool zfs zfs-fuse; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/sbin/%s "$@"\n' "$libraries" "$2" "$tool" >/usr/local/sbin/$tool
    chmod +x /usr/local/sbin/$tool
done
for disk in data:2G log:256M cache:512M; do
    file=$1/${disk%:*}
    [ -e "$file" ] || truncate -s "${disk#*:}" "$file"
    device=$(losetup -f --show "$file")
    ln -s "../..$device" "/run/disks/${disk%:*}"
    exec 9<"$device"
    sleep infinity >/dev/null 2>&1 &    # it has the device open, too
    losetup -d "$device"                # as soon as nobody has it open, which is at the latest when the node ends
    exec 9<&-
done
