// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Proc is a process of a stage that runs in the background. Its methods may be called from several
// goroutines.
type Proc struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// startProc starts cmd in a process group of its own. Output that cmd does not direct elsewhere is
// appended to logFile.
func startProc(name string, cmd *exec.Cmd, logFile string) (*Proc, error) {
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return nil, fmt.Errorf("start process %s: %w", name, err)
	}
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start process %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // the process has its own descriptor
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	if cmd.Stderr == nil {
		cmd.Stderr = f
	}
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start process %s: %w", name, err)
	}
	p := &Proc{name: name, log: logFile, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ownGroup makes cmd the leader of its own process group, and has the kernel kill it when this
// program dies.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if !cmd.SysProcAttr.Setsid {
		cmd.SysProcAttr.Setpgid = true
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// Name is the name the process was started under.
func (p *Proc) Name() string { return p.name }

// Pid is the id of the main process.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Log is the path of the file that has the process's output.
func (p *Proc) Log() string { return p.log }

// Done is closed when the main process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Exited says whether the main process has ended.
func (p *Proc) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait waits for the main process to end and returns what exec.Cmd.Wait returned, or ctx's error if
// that comes first.
func (p *Proc) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for process %s: %w", p.name, ctx.Err())
	}
}

// Signal sends sig to the main process only. A process that has ended is no error.
func (p *Proc) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %s: %w", p.name, err)
	}
	return nil
}

// Stop freezes the main process (SIGSTOP): it keeps its sockets and says nothing.
func (p *Proc) Stop() error { return p.Signal(syscall.SIGSTOP) }

// Cont ends a freeze.
func (p *Proc) Cont() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process and its whole group with SIGKILL, and returns when the main process is
// gone.
func (p *Proc) Kill() {
	if !p.Exited() {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // ESRCH: it has just ended
	}
	<-p.done
}

// Terminate asks the main process to end (SIGTERM) and waits for it; when ctx ends first, it is
// killed and ctx's error returned.
func (p *Proc) Terminate(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("terminate process %s: %w, it was killed: see %s", p.name, ctx.Err(), p.log)
	}
}

// tail is the end of the process's log, for error messages.
func (p *Proc) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}
