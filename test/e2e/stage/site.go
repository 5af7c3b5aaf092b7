// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Site is one place of the stage: a network namespace with processes and guests. Its methods may be
// called from several goroutines.
type Site struct {
	stage *Stage
	name  string
	index int // from 1
	ns    string

	mu     sync.Mutex
	guests map[int]*Guest // by host number
}

// Name is the site's name in Config.Sites.
func (s *Site) Name() string { return s.name }

// Addr is the site's main address: processes of the site send from it.
func (s *Site) Addr() string { return siteAddr(s.index, firstHost) }

// AddrN is a further address of the site's processes, for a second gateway and the like; n is 0
// (Addr) to 7.
func (s *Site) AddrN(n int) string {
	if n < 0 || n > lastHost-firstHost {
		panic(fmt.Sprintf("stage: site %s has addresses 0 to %d, not %d", s.name, lastHost-firstHost, n))
	}
	return siteAddr(s.index, firstHost+n)
}

// Dir is the site's folder below the state folder, for data and logs.
func (s *Site) Dir() string { return filepath.Join(s.stage.dir, s.name) }

// Command prepares a host process inside the site's network namespace. It gets its own process
// group, all of which is killed when ctx ends; it also dies when this program does. Add to its
// environment with append(cmd.Environ(), ...). Do not start it from within Do.
func (s *Site) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + nsPath(s.ns), "--", name}, args...)...)
	cmd.Env = append(os.Environ(), stageEnv+"="+s.stage.prefix)
	ownGroup(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// Start starts cmd, made by Command, in the background. Unless cmd says otherwise its output is
// appended to Dir()/name.log. The process ends at the latest with the stage.
func (s *Site) Start(name string, cmd *exec.Cmd) (*Proc, error) {
	return startProc(s.name+"/"+name, cmd, filepath.Join(s.Dir(), name+".log"))
}

// Do calls fn on a thread that is in the site's network namespace. Sockets that fn makes stay in
// that namespace, also after Do. fn must not make sockets in other goroutines, nor start processes.
func (s *Site) Do(fn func() error) error { return inNamespace(s.ns, fn) }

// DialContext connects from the site; the address must be numeric. It fits http.Transport and
// grpc.WithContextDialer.
func (s *Site) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := s.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen opens a listener at the site; the address must be numeric.
func (s *Site) Listen(network, address string) (net.Listener, error) {
	var l net.Listener
	err := s.Do(func() (err error) {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

func nsPath(ns string) string { return filepath.Join("/run/netns", ns) }

// inNamespace calls fn on a thread of its own inside a network namespace.
func inNamespace(ns string, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("enter namespace %s: %w", ns, err)
			return
		}
		defer func() { _ = home.Close() }()
		there, err := os.Open(nsPath(ns))
		if err == nil {
			err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
			_ = there.Close()
		}
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("enter namespace %s: %w", ns, err)
			return
		}
		err = fn()
		// A thread that cannot go back stays locked, so it ends with this goroutine and no other
		// goroutine runs on it.
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("leave namespace %s: %w", ns, back))
		} else {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}
