// SPDX-License-Identifier: Apache-2.0

package zfstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a block device that can be slow, that counts its work, and that can be pulled out. It is
// a loop over the only file of a FUSE file system, which a process of its own serves: what waits
// for the device does not wait in this one.
type Disk struct {
	Path   string // of the device
	t      *testing.T
	client *rpc.Client
}

// Work is what a disk has done.
type Work struct {
	Reads, Writes, Syncs    uint64
	ReadBytes, WrittenBytes uint64
}

// Speed is how slow a disk is. It does one thing at a time. The zero Speed is as fast as can be.
type Speed struct {
	Delay time.Duration // of each request
	Rate  int64         // bytes a second; 0: no limit
}

// serving marks the process that serves a disk: it has the path of the mountpoint, and beside it
// the file.
const serving = "WEIR_TEST_DISK"

// NewDisk makes a disk of that many bytes, which ends with the test.
func NewDisk(t *testing.T, name string, size int64) *Disk {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	f, err := os.Create(dir + ".disk")
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o700), f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serving+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &Disk{t: t, client: jsonrpc.NewClient(pipes{out, in})}
	t.Cleanup(func() {
		_ = exec.Command("umount", "-l", dir).Run()
		_ = d.client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d.call("Disk.Mounted", struct{}{}, &struct{}{})
	d.Path = loop(t, filepath.Join(dir, "disk"))
	return d
}

// pipes are the two ways to a process.
type pipes struct {
	io.Reader
	io.WriteCloser
}

func (d *Disk) call(method string, args, reply any) {
	d.t.Helper()
	if err := d.client.Call(method, args, reply); err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
}

// Slow changes how slow the disk is.
func (d *Disk) Slow(s Speed) {
	d.t.Helper()
	d.call("Disk.Slow", s, &struct{}{})
}

// Pull pulls the disk out: all that is asked of it fails. Plug puts it back, as it was.
func (d *Disk) Pull() {
	d.t.Helper()
	d.call("Disk.Pull", true, &struct{}{})
}

// Plug undoes Pull.
func (d *Disk) Plug() {
	d.t.Helper()
	d.call("Disk.Pull", false, &struct{}{})
}

// Work returns what the disk has done.
func (d *Disk) Work() (w Work) {
	d.t.Helper()
	d.call("Disk.Work", struct{}{}, &w)
	return w
}

// serve serves a disk until its standard input ends. It returns the process's exit code.
func serve(dir string) int {
	f, err := os.OpenFile(dir+".disk", os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	st, err := f.Stat()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	n := &node{file: f, size: st.Size()}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		OnAdd: func(ctx context.Context) {
			root.AddChild("disk", root.NewPersistentInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFREG}), true)
		},
		MountOptions: fuse.MountOptions{DirectMountStrict: true, DisableXAttrs: true, MaxWrite: 1 << 20, DisableSplice: true,
			FsName: "disk"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mount the disk's file system:", err)
		return 1
	}
	control := rpc.NewServer()
	if err := control.RegisterName("Disk", n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	control.ServeCodec(jsonrpc.NewServerCodec(pipes{os.Stdin, os.Stdout}))
	_ = server.Unmount()
	return 0
}

// node is the file that is a disk.
type node struct {
	fs.Inode
	file *os.File
	size int64

	head sync.Mutex // held while the disk does something

	mu     sync.Mutex
	speed  Speed
	pulled bool
	work   Work
}

var (
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
)

// Mounted answers once the disk is there.
func (n *node) Mounted(struct{}, *struct{}) error { return nil }

// Slow sets the speed.
func (n *node) Slow(s Speed, _ *struct{}) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.speed = s
	return nil
}

// Pull pulls the disk out, or puts it back.
func (n *node) Pull(out bool, _ *struct{}) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pulled = out
	return nil
}

// Work tells what was done.
func (n *node) Work(_ struct{}, w *Work) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	*w = n.work
	return nil
}

// do has the disk do something with that many bytes, and counts it.
func (n *node) do(bytes int, count func(*Work), what func() error) syscall.Errno {
	n.mu.Lock()
	speed, pulled := n.speed, n.pulled
	n.mu.Unlock()
	if pulled {
		return syscall.EIO
	}
	if speed != (Speed{}) {
		n.head.Lock()
		defer n.head.Unlock()
		wait := speed.Delay
		if speed.Rate > 0 {
			wait += time.Duration(int64(bytes) * int64(time.Second) / speed.Rate)
		}
		time.Sleep(wait)
	}
	if err := what(); err != nil {
		return fs.ToErrno(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	count(&n.work)
	return 0
}

// Open implements fs.NodeOpener. Nothing is cached above the disk.
func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, p []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	got := 0
	errno := n.do(len(p), func(w *Work) {
		w.Reads++
		w.ReadBytes += uint64(got)
	}, func() (err error) {
		if got, err = n.file.ReadAt(p, off); errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	return fuse.ReadResultData(p[:got]), errno
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, p []byte, off int64) (uint32, syscall.Errno) {
	errno := n.do(len(p), func(w *Work) {
		w.Writes++
		w.WrittenBytes += uint64(len(p))
	}, func() error {
		_, err := n.file.WriteAt(p, off)
		return err
	})
	return uint32(len(p)), errno
}

// Fsync implements fs.NodeFsyncer. Nothing is lost with this machine's power that a test would
// miss.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.do(0, func(w *Work) { w.Syncs++ }, func() error { return nil })
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(n.size)
	return 0
}

// Setattr implements fs.NodeSetattrer: nothing changes.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return n.Getattr(ctx, h, out)
}
