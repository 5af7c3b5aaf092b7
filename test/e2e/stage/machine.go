// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"context"
	_ "embed" // the machines' init script
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed guest/init.sh
var initScript []byte

// Result is what a command in a guest left behind.
type Result struct {
	Stdout string
	Stderr string
	Code   int // exit code; 128+n: ended by signal n
}

// nic is a network interface of a machine: vecN inside, a raw socket on the host's interface
// outside. The host's interface must be a veth: a tap sometimes delays a packet until the next one
// comes (200 ms were seen). The socket needs gro=1: without it, frames that the host left
// unsegmented are lost and reads hang.
type nic struct{ host, mac string }

// machine is a User-Mode-Linux kernel that sees the host's files below an overlay in memory. It
// runs scripts that the host sends.
type machine struct {
	name string // host name, unique on this host
	ns   string // network namespace it runs in
	dir  string // init, control/ (see guest/init.sh), x/ (guest's /x), console.log
	mem  int    // MiB
	nics []nic
	boot string // script that init runs before it takes requests
	run  string // short folder for the kernel's own socket

	kernel kernel

	proc *Proc
	mu   sync.Mutex // guards seq and writing to ctl
	seq  int        // id of the newest script
	ctl  *os.File   // the guest's ttyS0
}

// started counts the machines of this process.
var started atomic.Int64

// nextCPU returns the processor that the next machine is to run on: those that this process may use
// take turns. A machine never has two things to do at once, but each system call of a guest's
// program wakes the kernel's process and then the program's again. Where the host is itself a
// virtual machine, waking a process on an idle second processor costs many times as much as on the
// same one.
func nextCPU() (int, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, fmt.Errorf("ask for the processors that may be used: %w", err)
	}
	turn := (int64(os.Getpid()) + started.Add(1)) % int64(allowed.Count())
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if turn == 0 {
			return cpu, nil
		}
		turn--
	}
}

// start boots the machine and waits until it takes requests. When it fails, nothing is left
// running.
func (m *machine) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("boot machine %s: %w", m.name, err)
		}
	}()
	control := filepath.Join(m.dir, "control")
	if err := os.RemoveAll(control); err != nil { // of an earlier life
		return err
	}
	for _, d := range []string{control, m.shared()} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			return err
		}
	}
	initPath := filepath.Join(m.dir, "init.sh")
	if err := errors.Join(os.WriteFile(initPath, initScript, 0o755),
		os.WriteFile(filepath.Join(control, "boot"), []byte(m.boot), 0o644)); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	cpu, err := nextCPU()
	if err != nil {
		return err
	}

	args := []string{
		"--net=" + nsPath(m.ns), "--", "taskset", "--cpu-list", strconv.Itoa(cpu),
		"env", "LD_PRELOAD=" + m.kernel.preload, m.kernel.path, // env: neither nsenter nor taskset
		"seccomp=auto", "umid=" + m.name, "uml_dir=" + m.run + "/", fmt.Sprintf("mem=%dM", m.mem),
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init=" + initPath,
		"con=null", "con0=null,fd:1", "ssl=null", "ssl0=fd:3,fd:4", // console out; requests in, nothing out
		"panic=-1", "noreboot", "printk.time=1", // a guest that oopses exits
		"stage_name=" + m.name, "stage_dir=" + m.dir, "stage_modules=" + m.kernel.modules,
	}
	for i, n := range m.nics {
		args = append(args, fmt.Sprintf("vec%d:transport=raw,ifname=%s,depth=64,gro=1,mac=%s", i, n.host, n.mac))
	}
	cmd := exec.Command("nsenter", args...)
	cmd.ExtraFiles = []*os.File{r, null}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the kernel and its stub processes are one group
	m.proc, err = startProc(m.name, cmd, filepath.Join(m.dir, "console.log"))
	if err != nil {
		_ = w.Close()
		return err
	}
	m.ctl = w
	if err := m.await(ctx, filepath.Join(control, "ready"), func([]byte) bool { return true }); err != nil {
		m.kill()
		return fmt.Errorf("%w: run hack/check-host, which tells what machines need; its console ends: %s", err, m.proc.tail())
	}
	if err := growReceiveBuffers(m.proc.Pid()); err != nil {
		m.kill()
		return err
	}
	return nil
}

func (m *machine) shared() string { return filepath.Join(m.dir, "x") }

// await waits until a file is there with contents that are complete.
func (m *machine) await(ctx context.Context, path string, complete func([]byte) bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(path)
		if err == nil && complete(b) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.proc.Done():
			return errors.New("the machine has ended")
		case <-tick.C:
		}
	}
}

func (m *machine) request(line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.ctl.WriteString(line + "\n")
	return err
}

// startScript has the machine run a bash script, as root in /root, and returns its id.
func (m *machine) startScript(script string) (string, error) {
	if m.proc.Exited() {
		return "", fmt.Errorf("run in machine %s: the machine has ended", m.name)
	}
	id, err := m.place(script)
	if err == nil {
		err = m.request("look")
	}
	if err != nil {
		return "", fmt.Errorf("run in machine %s: %w", m.name, err)
	}
	return id, nil
}

// place puts a script where the machine finds it, whole, and returns its id.
func (m *machine) place(script string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := strconv.Itoa(m.seq + 1)
	part := m.file(id, "part")
	if err := os.WriteFile(part, []byte(script+"\n"), 0o644); err != nil {
		return "", err // the machine waits for this id
	}
	if err := os.Rename(part, m.file(id, "cmd")); err != nil {
		return "", err
	}
	m.seq++
	return id, nil
}

// finish waits for a script's end, collects its result and removes its files. When ctx ends first,
// the script is killed.
func (m *machine) finish(ctx context.Context, id string) (Result, error) {
	newline := func(b []byte) bool { return bytes.HasSuffix(b, []byte("\n")) }
	if err := m.await(ctx, m.file(id, "rc"), newline); err != nil {
		if !m.proc.Exited() {
			_ = m.request("kill " + id + " KILL")
		}
		out, errOut := m.read(id, "out"), m.read(id, "err")
		return Result{Stdout: out, Stderr: errOut, Code: -1}, fmt.Errorf("run in machine %s: %w; so far it said: %s%s",
			m.name, err, out, errOut)
	}
	code, err := strconv.Atoi(strings.TrimSpace(m.read(id, "rc")))
	if err != nil {
		return Result{}, fmt.Errorf("run in machine %s: bad exit code: %w", m.name, err)
	}
	res := Result{Stdout: m.read(id, "out"), Stderr: m.read(id, "err"), Code: code}
	for _, kind := range []string{"cmd", "out", "err", "rc"} {
		_ = os.Remove(m.file(id, kind)) // only room; the folder goes with the stage
	}
	return res, nil
}

func (m *machine) file(id, kind string) string {
	return filepath.Join(m.dir, "control", id+"."+kind)
}

func (m *machine) read(id, kind string) string {
	b, _ := os.ReadFile(m.file(id, kind)) // not there yet: nothing said
	return string(b)
}

// off asks the machine to unmount what it has from NFS and to power off; it is killed when ctx ends
// first.
func (m *machine) off(ctx context.Context) error {
	err := m.request("poweroff")
	if err == nil {
		select {
		case <-m.proc.Done():
		case <-ctx.Done():
			err = fmt.Errorf("power off machine %s: %w, it was killed", m.name, ctx.Err())
		}
	}
	m.kill()
	return err
}

// kill ends the machine at once, like a power cut.
func (m *machine) kill() {
	m.proc.Kill()
	_ = m.ctl.Close()
}
