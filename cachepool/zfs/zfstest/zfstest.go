// SPDX-License-Identifier: Apache-2.0

// Package zfstest has real ZFS for tests: the kernel's, or zfs-fuse, which runs without a module.
package zfstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Memory is how much zfs-fuse keeps in memory, in bytes.
const Memory = 32 << 20

// inside marks the process that Main starts in a mount namespace of its own.
const inside = "WEIR_TEST_ZFS"

// Main runs a package's tests where ZFS is. zfs-fuse runs in a mount namespace of its own, beside
// others. Without root it runs no test, and says so. It does not return.
func Main(m *testing.M) {
	if dir := os.Getenv(serving); dir != "" {
		os.Exit(serve(dir))
	}
	switch {
	case os.Geteuid() != 0:
		fmt.Println("no test ran: ZFS needs root")
		os.Exit(0)
	case kernel():
		os.Exit(m.Run())
	case os.Getenv(inside) == "":
		os.Exit(again())
	}
	err := reach()
	stop := func() {}
	if err == nil {
		stop, err = start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start zfs-fuse:", err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// kernel reports whether the kernel has ZFS.
func kernel() bool {
	_, err := os.Stat("/dev/zfs")
	return err == nil
}

// again runs this program in a mount namespace of its own, and returns its exit code.
func again() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
	}
	return cmd.ProcessState.ExitCode()
}

// reach makes this process find what hack/fetch-zfs fetched.
func reach() error {
	cache := os.Getenv("WEIR_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		cache = filepath.Join(dir, "weir")
	}
	libraries, err := filepath.Glob(filepath.Join(cache, "zfs", "lib", "*-linux-gnu"))
	if err == nil && len(libraries) == 0 {
		err = errors.New("it is not there: run hack/fetch-zfs")
	}
	if err != nil {
		return err
	}
	more, err := filepath.Glob(filepath.Join(cache, "zfs", "usr", "lib", "*-linux-gnu"))
	return errors.Join(err, os.Setenv("PATH", filepath.Join(cache, "zfs", "sbin")+":"+os.Getenv("PATH")),
		os.Setenv("LD_LIBRARY_PATH", strings.Join(append(libraries, more...), ":")))
}

// start runs zfs-fuse, whose socket, lock and list of pools are of this namespace only.
func start() (stop func(), err error) {
	for _, folder := range []string{"/run/zfs", "/var/lib/zfs", "/var/lock/zfs", "/etc/zfs", "/zfs-kstat"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
		if folder == "/zfs-kstat" {
			continue
		}
		if err := syscall.Mount("none", folder, "tmpfs", 0, ""); err != nil {
			return nil, fmt.Errorf("mount tmpfs on %s: %w", folder, err)
		}
	}
	cmd := exec.Command("zfs-fuse", "--no-daemon", "--disable-block-cache", "--max-arc-size", strconv.Itoa(Memory>>20))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }) // it waits for whoever is in a dataset
		_ = cmd.Wait()
		kill.Stop()
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command("zpool", "list", "-H").CombinedOutput()
		if err == nil {
			return stop, nil
		}
		if time.Now().After(end) {
			stop()
			return nil, fmt.Errorf("it does not answer: %s", out)
		}
	}
}

// Device makes a block device of that many bytes, a loop over a file, which ends with the test.
func Device(t *testing.T, name string, size int64) (path, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return loop(t, file), file
}

// loop makes a loop device over a file, which ends with the test.
func loop(t *testing.T, file string) (path string) {
	t.Helper()
	path = strings.TrimSpace(Run(t, "losetup", "-f", "--show", file))
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	Run(t, "losetup", "-d", path) // once nobody has it open: at the latest when this process ends
	return path
}

// Destroy destroys a ZFS pool, or a dataset with those below it. zfs-fuse ends mounts late, and
// hangs when about a hundred datasets are mounted.
func Destroy(t *testing.T, name string) {
	t.Helper()
	command := []string{"zpool", "destroy", "-f", name}
	if strings.Contains(name, "/") {
		command = []string{"zfs", "destroy", "-r", name}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out, err := bounded(command[0], command[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("destroy %s: %s", name, out)
			return
		}
	}
}

// Leave destroys a ZFS pool whose devices may have failed, if it would outlive the tests: zfs-fuse
// does not, and may hang.
func Leave(t *testing.T, name string) {
	t.Helper()
	if kernel() {
		Destroy(t, name)
	}
}

// bounded runs a command, for a minute at most: on a ZFS pool without its disks it may hang for
// ever.
func bounded(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// Busy has a ZFS pool write to its data devices every five seconds until the test ends, as OpenZFS
// does while anything is written. zfs-fuse does it every 30 s, and until then it notices no device
// that is gone.
func Busy(t *testing.T, name string) {
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Second):
				_, _ = bounded("zfs", "set", fmt.Sprintf("org.weir.test:busy=%d", n), name) // it may be gone
			}
		}
	}()
}

// Run runs a command and returns what it prints.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := bounded(name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
