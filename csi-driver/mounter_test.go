// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/csi-driver/mount"
	"github.com/weir-storage/weir/csi-driver/node"
)

// private is set in the environment of a test binary that runs in a mount namespace of its own,
// where it may mount what it likes.
const private = "WEIR_CSI_PRIVATE_MOUNTS"

// TestPrivateMounts repeats this package's tests about mounts with the kernel's mounts instead of a
// table in memory. tmpfs is in the place of NFS, which needs a gateway: the end-to-end tests have
// one.
func TestPrivateMounts(t *testing.T) {
	if os.Getenv(private) != "" {
		t.Skip("these are they")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"-test.run=^(TestSanity|TestKilled|TestReadOnly|TestKernel|TestOnePod|TestStacked)", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), private+"=1", "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"TestSanity", "TestKilled", "TestReadOnly", "TestKernel", "TestOnePod", "TestStacked"} {
		if !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%s did not run in the private namespace:\n%s", name, out)
		}
	}
}

// newMounter is the kernel's where that is possible, else a table in memory.
func newMounter(t *testing.T) node.Mounter {
	if os.Getenv(private) == "" {
		return &table{}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	return kernelWithoutNFS{}
}

// kernelWithoutNFS mounts tmpfs instead of NFS.
type kernelWithoutNFS struct{ mount.Kernel }

func (kernelWithoutNFS) Mount(source, path string, vfs []string, _ string) error {
	var flags uintptr
	for _, o := range vfs {
		flags |= map[string]uintptr{"nosuid": unix.MS_NOSUID, "noexec": unix.MS_NOEXEC}[o]
	}
	return unix.Mount(source, path, "tmpfs", flags, "size=1m")
}

// table is a kernel's mounts, in memory; directories are real.
type table struct {
	mount.Kernel
	mu      sync.Mutex
	list    []mount.Point
	devices int
	data    []string            // of each Mount
	refuse  map[string]error    // of Mount, by version
	used    []mount.How         // of each Unmount
	busy    map[mount.How]error // of Unmount
	remount error               // of Bind with readOnly
}

func (k *table) Mounts() ([]mount.Point, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list), nil
}

func (k *table) Mount(source, path string, vfs []string, data string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.data = append(k.data, data)
	for v, err := range k.refuse {
		if strings.Contains(data, "vers="+v) {
			return err
		}
	}
	if _, err := os.Lstat(path); err != nil {
		return syscall.ENOENT
	}
	k.devices++
	k.list = append(k.list, mount.Point{
		Path: path, Device: fmt.Sprintf("0:%d", 100+k.devices), Root: "/", Source: source, FsType: "nfs4",
		Options: append([]string{"rw"}, vfs...)})
	return nil
}

func (k *table) Bind(from, path string, readOnly bool, options []string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if readOnly && k.remount != nil {
		return k.remount
	}
	if readOnly {
		for i := range slices.Backward(k.list) {
			if k.list[i].Path == path {
				kept := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "rw" || o == "ro" })
				k.list[i].Options = append([]string{"ro"}, kept...)
				return nil
			}
		}
		return syscall.EINVAL
	}
	m, ok := mount.At(k.list, from)
	if _, err := os.Lstat(path); err != nil || !ok {
		return syscall.ENOENT
	}
	m.Path = path
	m.Options = slices.Clone(m.Options)
	k.list = append(k.list, m)
	return nil
}

func (k *table) Unmount(path string, how mount.How) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = append(k.used, how)
	if err := k.busy[how]; err != nil {
		return err
	}
	for i := range slices.Backward(k.list) {
		if k.list[i].Path == path {
			k.list = slices.Delete(k.list, i, i+1)
			return nil
		}
	}
	return syscall.EINVAL
}

func (k *table) Directory(path string, there bool) error {
	k.mu.Lock()
	_, mounted := mount.At(k.list, path)
	k.mu.Unlock()
	if mounted && !there {
		return syscall.EBUSY
	}
	return k.Kernel.Directory(path, there)
}

// hosts resolves the gateway's name.
type hosts map[string]string

func (h hosts) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a, ok := h[host]
	if !ok {
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr(a)}, nil
}

// never is a clock on which nothing ends.
func never(time.Duration) <-chan time.Time { return nil }

func nodeConfig(w *world, m node.Mounter) node.Config {
	return node.Config{
		Gateway: w.gateway, Mounter: m, Resolver: hosts{"gateway.weir": "10.0.0.9"}, Federation: testFederation, Site: testSite,
		Cluster: testCluster, Node: testNode, NodeUID: "node-uid",
		SetIdentifier: func(string) error { return nil }, After: never,
	}
}

func newNode(t *testing.T, cfg node.Config) *node.Server {
	t.Helper()
	n, err := node.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
