// SPDX-License-Identifier: Apache-2.0

package preflightcmd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cmd/weir/internal/config"
)

// machine is what the checks of a node look at.
type machine struct {
	root    string // folder that has the machine's file system
	release func() (string, error)
	synced  func() (bool, error) // whether a time service keeps the clock
	listen  func(ctx context.Context, address string) error
}

func thisMachine() machine {
	return machine{root: "/", release: release, synced: clockSynced, listen: canListen}
}

// release is the kernel's release, which is also its folder in /lib/modules.
func release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// clockSynced asks the kernel whether a time service disciplines its clock (adjtimex(2),
// STA_UNSYNC).
func clockSynced() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, err
}

func canListen(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

func (m machine) check(ctx context.Context, cfg *config.Config) []finding {
	out := []finding{m.nfs(), m.clock()}
	if cfg != nil {
		out = append(out, m.port(ctx, "listen.grpc", cfg.Listen.GRPC), m.port(ctx, "listen.nfs", cfg.Listen.NFS))
	}
	return out
}

// nfs looks for the kernel's NFSv4 client: built in, loaded, or a module that the first mount
// loads.
func (m machine) nfs() finding {
	f := finding{Check: "kernel NFS client"}
	list, err := os.ReadFile(filepath.Join(m.root, "proc/filesystems"))
	if err != nil {
		f.Verdict, f.Found, f.Mend = broken, err.Error(), "run this on a Linux node, with /proc mounted"
		return f
	}
	if slices.Contains(strings.Fields(string(list)), "nfs4") {
		f.Found = "NFSv4 is there"
		return f
	}
	kernel, err := m.release()
	if err != nil {
		f.Verdict, f.Found = broken, err.Error()
		return f
	}
	for _, dir := range []string{"lib/modules", "usr/lib/modules"} {
		// no error: the pattern is right
		if found, _ := filepath.Glob(filepath.Join(m.root, dir, kernel, "kernel/fs/nfs/nfsv4.ko*")); len(found) > 0 {
			f.Found = "NFSv4 is a module that the first mount loads: " + strings.TrimPrefix(found[0], m.root)
			return f
		}
	}
	f.Verdict, f.Found = broken, "kernel "+kernel+" has no NFSv4 client, built in or as a module"
	f.Mend = "install the distribution's package with the module nfsv4 for this kernel (such as linux-modules-extra), " +
		"or a kernel with CONFIG_NFS_V4; pods cannot mount volumes on this node without"
	return f
}

func (m machine) clock() finding {
	f := finding{Check: "clock", Found: "is kept by a time service"}
	switch ok, err := m.synced(); {
	case err != nil:
		f.Verdict, f.Found, f.Mend = doubt, err.Error(), "see that a time service runs on this node"
	case !ok:
		f.Verdict, f.Found = doubt, "nobody keeps it: the kernel says that it is not synchronized"
		f.Mend = "run a time service (chrony, systemd-timesyncd): certificates and S3 requests are refused " +
			"with a clock that is minutes off, and the times of files at two sites differ"
	}
	return f
}

func (m machine) port(ctx context.Context, field, address string) finding {
	f := finding{Check: "port " + field, Found: address + " is free"}
	if err := m.listen(ctx, address); err != nil {
		f.Verdict, f.Found = broken, fmt.Sprintf("%s: %v", address, err)
		f.Mend = "stop who listens there (`ss -ltnp`), or choose another address or port in " + field
	}
	return f
}
