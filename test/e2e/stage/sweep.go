// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	runDir   = "/run/weir-stage"
	stageEnv = "WEIR_STAGE" // set to the prefix in the environment of all processes of a stage
	cleanup  = 20 * time.Second
)

// record is what is saved about a stage before it is built, in
// /run/weir-stage/<prefix>/record.json.
type record struct {
	Prefix     string
	Owner      int    // pid of the program that built it
	OwnerStart string // its start time, in ticks since boot: pids are used again
	Namespaces []string
	StateDir   string
	Temporary  bool // remove StateDir too
}

func newRecord(prefix, stateDir string, temporary bool) (record, error) {
	start, err := startTime(os.Getpid())
	return record{Prefix: prefix, Owner: os.Getpid(), OwnerStart: start, StateDir: stateDir, Temporary: temporary}, err
}

func (r record) dir() string { return filepath.Join(runDir, r.Prefix) }

func (r record) write() error {
	if err := os.Mkdir(r.dir(), 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir(), "record.json"), b, 0o644)
}

// Sweep takes down the stages whose programs were killed, and returns their prefixes. Stages of
// living programs are left alone.
func Sweep() ([]string, error) {
	unlock, err := lockRunDir() // two sweeps at once would trip over each other
	if err != nil {
		return nil, fmt.Errorf("sweep stages: %w", err)
	}
	defer unlock()
	var swept []string
	var errs []error
	files, _ := filepath.Glob(filepath.Join(runDir, "*", "record.json")) // the pattern is well-formed
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) { // its owner was quicker
			continue
		}
		var r record
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil || filepath.Dir(file) != r.dir() {
			// Being written right now, or torn by a kill: then nothing had been built yet.
			continue
		}
		if start, err := startTime(r.Owner); err == nil && start == r.OwnerStart {
			continue
		}
		if err := r.clean(); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, r.Prefix)
	}
	return swept, errors.Join(errs...)
}

func lockRunDir() (unlock func(), err error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(runDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// clean undoes everything and removes the record last, so that the next Sweep repeats what failed.
func (r record) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	var errs []error
	for _, ns := range r.Namespaces {
		errs = append(errs, emptyNamespace(ctx, ns))
	}
	for _, m := range mountsBelow(r.StateDir) {
		if err := syscall.Unmount(m, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	for dev := range loopsBelow(r.StateDir) {
		_, err := run(ctx, "", "losetup", "-d", dev)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take stage %s down: %w", r.Prefix, err)
	}
	for _, ns := range r.Namespaces {
		if _, err := os.Stat(nsPath(ns)); err == nil {
			errs = append(errs, ipBatch(ctx, "", "netns del "+ns))
		}
	}
	if r.Temporary {
		errs = append(errs, os.RemoveAll(r.StateDir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take stage %s down: %w", r.Prefix, err)
	}
	return os.RemoveAll(r.dir())
}

// emptyNamespace kills all processes in a network namespace and waits until it has none.
func emptyNamespace(ctx context.Context, ns string) error {
	for {
		pids := pidsIn(ns)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has just ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v in namespace %s do not die: %w", pids, ns, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pidsIn lists the processes in a namespace that has a name; none when the name is gone. This
// program is not among them, even while a thread of it is there.
func pidsIn(ns string) []int {
	var want syscall.Stat_t
	if syscall.Stat(nsPath(ns), &want) != nil {
		return nil
	}
	return processes(func(proc string) bool {
		var st syscall.Stat_t
		return syscall.Stat(filepath.Join(proc, "ns/net"), &st) == nil && st.Ino == want.Ino && st.Dev == want.Dev
	})
}

// processes lists the other processes of this machine whose folder in /proc satisfies is.
func processes(is func(proc string) bool) []int {
	entries, _ := os.ReadDir("/proc") // always there
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && is(filepath.Join("/proc", e.Name())) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r record) leftovers() []string {
	var left []string
	for _, pid := range processes(func(proc string) bool {
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		return strings.Contains("\x00"+string(env), "\x00"+stageEnv+"="+r.Prefix+"\x00") || strings.Contains(string(args), r.Prefix+"-")
	}) {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	names, _ := filepath.Glob(nsPath(r.Prefix + "-*"))
	etc, _ := filepath.Glob("/etc/netns/" + r.Prefix + "-*")
	left = append(append(left, names...), etc...)
	left = append(left, mountsBelow(r.StateDir)...)
	for dev, file := range loopsBelow(r.StateDir) {
		left = append(left, dev+" on "+file)
	}
	for _, path := range []string{r.dir(), r.StateDir} {
		if _, err := os.Stat(path); err == nil && (path != r.StateDir || r.Temporary) {
			left = append(left, path)
		}
	}
	return left
}

// mountsBelow lists the mount points in a folder, innermost first.
func mountsBelow(dir string) []string {
	b, _ := os.ReadFile("/proc/self/mountinfo") // always there
	var mounts []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			mounts = append(mounts, f[4])
		}
	}
	slices.Reverse(mounts)
	return mounts
}

// loopsBelow finds the loop devices whose files are in a folder.
func loopsBelow(dir string) map[string]string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is well-formed
	loops := map[string]string{}
	for _, f := range files {
		b, _ := os.ReadFile(f) // gone: not ours either
		if backing := strings.TrimSpace(string(b)); strings.HasPrefix(backing, dir+"/") {
			loops["/dev/"+strings.Split(f, "/")[3]] = backing
		}
	}
	return loops
}

// startTime is when a process was started, in ticks since boot: field 22 of proc_pid_stat(5).
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before may hold anything but this
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("read start time of process %d: unexpected /proc/%[1]d/stat", pid)
	}
	return fields[19], nil
}
