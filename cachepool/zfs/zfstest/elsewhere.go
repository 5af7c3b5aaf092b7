// SPDX-License-Identifier: Apache-2.0

package zfstest

import "testing"

// NeedElsewhere skips a test that is going to call Elsewhere where that does not work.
func NeedElsewhere(t *testing.T) {
	t.Helper()
	if kernel() {
		t.Skip("the kernel's ZFS is this machine's alone")
	}
}

// Elsewhere runs a script of bash with the commands of ZFS as another machine does, that sees the
// same devices, has another identity (hostid), and loses its power when the script ends. It needs
// zfs-fuse.
func Elsewhere(t *testing.T, script string) {
	t.Helper()
	NeedElsewhere(t)
	Run(t, "unshare", "--mount", "bash", "-c", `set -euo pipefail
mount --make-rprivate /
mkdir "$1/up" "$1/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/up,workdir=$1/work" /etc
printf '\1\2\3\4' >/etc/hostid
for folder in /run/zfs /var/lib/zfs /var/lock/zfs /etc/zfs; do mkdir -p $folder; mount -t tmpfs none $folder; done
zfs-fuse --no-daemon --no-kstat-mount --disable-block-cache >/dev/null 2>&1 &
trap "kill -9 $!" EXIT
until zpool list >/dev/null 2>&1; do sleep 0.1; done
`+script, "elsewhere", t.TempDir())
}
