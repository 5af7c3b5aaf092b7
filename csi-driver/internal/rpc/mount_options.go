// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MountFlags are the mountOptions of a PersistentVolume or StorageClass, sorted by who reads them.
type MountFlags struct {
	// ReadOnly makes the bind mounts read-only. The mount at the staging path stays writable: it is
	// shared with pods that write.
	ReadOnly bool
	// Version is 4.1 or 4.2, or empty when the options name no version of NFS.
	Version string
	// VFS are options that any file system has, such as noexec.
	VFS []string
	// NFS are options of the kernel's NFS client.
	NFS []string
}

var digits = regexp.MustCompile(`^[0-9]{1,10}$`)

// The mount options that are allowed.
var (
	vfsOptions = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "sync", "dirsync"}
	// noOps change nothing: every mount has them.
	noOps = []string{"rw", "hard", "noresvport", "defaults", "proto=tcp", "sec=sys"}
	// nfsNumbers take a number.
	nfsNumbers = []string{"nconnect", "max_connect", "rsize", "wsize",
		"acregmin", "acregmax", "acdirmin", "acdirmax", "actimeo", "timeo", "retrans"}
	nfsFlags     = []string{"noac", "nordirplus", "rdirplus"}
	nfsVersions  = []string{"4.1", "4.2"}
	lookupCaches = []string{"all", "none", "pos", "positive"}
)

// refusals say why an option is refused that people use with other NFS servers.
var refusals = map[string]string{
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

// ParseMountFlags checks mount options. The error is INVALID_ARGUMENT and names the option.
func ParseMountFlags(flags []string) (MountFlags, error) {
	var m MountFlags
	for _, all := range flags {
		for _, o := range strings.Split(all, ",") {
			if err := m.add(strings.TrimSpace(o)); err != nil {
				return MountFlags{}, err
			}
		}
	}
	return m, nil
}

// add sorts one option into m.
func (m *MountFlags) add(o string) error {
	name, value, _ := strings.Cut(o, "=")
	switch {
	case o == "" || slices.Contains(noOps, o):
	case o == "ro":
		m.ReadOnly = true
	case slices.Contains(vfsOptions, o):
		m.VFS = append(m.VFS, o)
	case slices.Contains(nfsFlags, o), name == "lookupcache" && slices.Contains(lookupCaches, value):
		m.NFS = append(m.NFS, o)
	case slices.Contains(nfsNumbers, name) && digits.MatchString(value):
		if n, _ := strconv.Atoi(value); name == "nconnect" && (n < 1 || n > 16) {
			return Invalid("mount option "+name, value, "write a number from 1 to 16")
		}
		m.NFS = append(m.NFS, o)
	case (name == "vers" || name == "nfsvers") && slices.Contains(nfsVersions, value):
		m.Version = value
	case name == "vers" || name == "nfsvers":
		return Invalid("mount option "+name, value, "gateways speak NFS 4.1 and 4.2; write one of them, or remove the option")
	case refusals[name] != "":
		return Invalid("mount option", o, refusals[name])
	default:
		return Invalid("mount option", o, fmt.Sprintf(
			"it is none that can be given here; remove it. There are ro, nfsvers=4.1, lookupcache=, %s, and with numbers %s",
			strings.Join(slices.Concat(vfsOptions, nfsFlags), ", "), strings.Join(nfsNumbers, "=, ")+"="))
	}
	return nil
}
