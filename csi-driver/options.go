// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mountFlags are the mountOptions of a PersistentVolume or StorageClass, understood.
type mountFlags struct {
	// readOnly makes the bind mounts read-only; the mount at the staging path is shared with pods that write.
	readOnly bool
	// version is 4.1 or 4.2 when one was chosen.
	version string
	// vfs are options of any file system, such as noexec.
	vfs []string
	// nfs are options of the kernel's NFS client.
	nfs []string
}

var digits = regexp.MustCompile(`^[0-9]{1,10}$`)

// what a mount option's value may be: vfs for options without one that any file system has, none for those of NFS without one, else the form.
var (
	vfsOptions  = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "sync", "dirsync"}
	noOps       = []string{"rw", "hard", "noresvport", "defaults", "proto=tcp", "sec=sys"} // it is so in any case
	nfsNumbers  = []string{"nconnect", "max_connect", "rsize", "wsize", "acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo", "timeo", "retrans"}
	nfsFlags    = []string{"noac", "nordirplus", "rdirplus"}
	nfsVersions = []string{"4.1", "4.2"}
	// refusals say why an option is refused that people use elsewhere.
	refusals = map[string]string{
		"soft":         "with it a write can be lost when a gateway is away for a moment; remove it: mounts are hard",
		"softerr":      "with it a write can be lost when a gateway is away for a moment; remove it: mounts are hard",
		"softreval":    "with it names and attributes may be stale while a gateway is away; remove it",
		"nocto":        "with it readers do not see what was written before they opened a file; remove it",
		"nolock":       "with it locks hold on one node only; remove it",
		"local_lock":   "with it locks hold on one node only; remove it",
		"nosharecache": "with it two mounts of a volume on a node do not see each other's changes; remove it",
		"udp":          "gateways speak TCP only; remove it",
		"resvport":     "gateways need no reserved port, and there are few; remove it",
	}
)

// parseMountFlags checks mount options; an error names the option.
func parseMountFlags(flags []string) (mountFlags, error) {
	var m mountFlags
	for _, all := range flags {
		for _, o := range strings.Split(all, ",") {
			o = strings.TrimSpace(o)
			name, value, _ := strings.Cut(o, "=")
			switch {
			case o == "" || slices.Contains(noOps, o):
			case o == "ro":
				m.readOnly = true
			case slices.Contains(vfsOptions, o):
				m.vfs = append(m.vfs, o)
			case slices.Contains(nfsFlags, o):
				m.nfs = append(m.nfs, o)
			case slices.Contains(nfsNumbers, name) && digits.MatchString(value), name == "lookupcache" && slices.Contains([]string{"all", "none", "pos", "positive"}, value):
				if n, _ := strconv.Atoi(value); name == "nconnect" && (n < 1 || n > 16) {
					return mountFlags{}, invalid("mount option "+name, value, "write a number from 1 to 16")
				}
				m.nfs = append(m.nfs, o)
			case (name == "vers" || name == "nfsvers") && slices.Contains(nfsVersions, value):
				m.version = value
			case name == "vers" || name == "nfsvers":
				return mountFlags{}, invalid("mount option "+name, value, "gateways speak NFS 4.1 and 4.2; write one of them, or remove the option")
			case refusals[name] != "":
				return mountFlags{}, invalid("mount option", o, refusals[name])
			default:
				return mountFlags{}, invalid("mount option", o, fmt.Sprintf("it is none that can be given here; remove it. There are ro, nfsvers=4.1, lookupcache=, %s, and with numbers %s",
					strings.Join(slices.Concat(vfsOptions, nfsFlags), ", "), strings.Join(nfsNumbers, "=, ")+"="))
			}
		}
	}
	return m, nil
}

// mountData is the data of mount(2) for type nfs4, as nfs(5) and the kernel's fs/nfs/fs_context.c have it. mount(2) takes
// an address, never a name, and wants it as addr= too. clientaddr= is for the callbacks of version 4.0.
func mountData(version string, addr netip.Addr, port uint16, nconnect int, m mountFlags) string {
	proto := "tcp"
	if addr.Is6() {
		proto = "tcp6"
	}
	// The last of two values counts: what the volume says comes before what the site says.
	o := []string{"vers=" + version, "addr=" + addr.String(), "hard", "proto=" + proto, "noresvport", "timeo=150", "retrans=2"}
	if port != 0 && port != 2049 {
		o = append(o, fmt.Sprintf("port=%d", port))
	}
	if nconnect > 0 {
		o = append(o, fmt.Sprintf("nconnect=%d", nconnect))
	}
	return strings.Join(append(o, m.nfs...), ",")
}

// mountSource is how the kernel names what is mounted, in mount(2) and in mountinfo.
func mountSource(addr netip.Addr, path string) string {
	if addr.Is6() {
		return "[" + addr.String() + "]:" + path
	}
	return addr.String() + ":" + path
}

// sortedKeys is for messages.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
