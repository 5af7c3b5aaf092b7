// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weir-storage/weir/csi-driver/mount"
)

// mountData is the data of mount(2) for type nfs4, as nfs(5) and fs/nfs/fs_context.c of the kernel
// describe it. mount(2) takes an address, never a name, and wants it as addr= too. clientaddr= is
// for the callbacks of version 4.0. nfs are the volume's own options of NFS. tls: both sides show
// certificates (RFC 9289, since Linux 6.5).
func mountData(version string, addr netip.Addr, port uint16, nconnect int, tls bool, nfs []string) string {
	proto := "tcp"
	if addr.Is6() {
		proto = "tcp6"
	}
	o := []string{"vers=" + version, "addr=" + addr.String(), "hard", "proto=" + proto, "noresvport", "timeo=150", "retrans=2"}
	if port != 0 && port != 2049 {
		o = append(o, fmt.Sprintf("port=%d", port))
	}
	if nconnect > 0 {
		o = append(o, fmt.Sprintf("nconnect=%d", nconnect))
	}
	if tls {
		o = append(o, "xprtsec=mtls")
	}
	// The kernel takes the last of two values: the volume's comes before the site's.
	return strings.Join(append(o, nfs...), ",")
}

// mountSource is how the kernel names a mount's source, in mount(2) and in mountinfo. tlsName is
// there instead of the address if there is one: the kernel tells tlshd to look for it in the
// gateway's certificate. It need not be in the DNS: addr= has the address.
func mountSource(addr netip.Addr, tlsName, path string) string {
	if tlsName != "" {
		return tlsName + ":" + path
	}
	if addr.Is6() {
		return "[" + addr.String() + "]:" + path
	}
	return addr.String() + ":" + path
}

// isExport reports whether a mount shows the export. It compares no addresses: the mount is from
// this site's gateway in any case, and works on when its Service gets another address.
func isExport(p mount.Point, x Export) bool { return strings.HasSuffix(p.Source, ":"+x.Path) }
