// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	_ "embed" // scripts that nodes run
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/weir-storage/weir/test/e2e/stage"
)

//go:embed node/host.sh
var hostScript []byte

// hostMachine is the host node's namespaces, which are those of a process.
type hostMachine struct {
	site *Site
	init *stage.Proc // pid 1
}

// bootHost makes the host node's namespaces.
func (s *Site) bootHost(ctx context.Context) (*Node, error) {
	dir := s.nodeDir(s.hostName())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	script, ready := filepath.Join(dir, "host.sh"), filepath.Join(dir, "ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.WriteFile(script, hostScript, 0o755); err != nil {
		return nil, err
	}
	cmd := s.Command(context.Background(), "bash", script, dir, s.group, s.PodRange(), s.nodePods(1))
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	p, err := s.Start(s.hostName(), cmd)
	if err != nil {
		return nil, err
	}
	m := hostMachine{s, p}
	n := &Node{Name: s.hostName(), Addr: s.Addr(), site: s, machine: m, number: 1, disk: filepath.Join(dir, "containerd")}
	s.mu.Lock()
	s.nodes, s.procs = append(s.nodes, n), append(s.procs, p)
	s.mu.Unlock()
	return n, s.await(ctx, "node "+n.Name, func(context.Context) error { _, err := os.Stat(ready); return err })
}

// inside prepares a command in the node's namespaces.
func (m hostMachine) inside(program string, args ...string) []string {
	return append([]string{"-t", strconv.Itoa(m.init.Pid()), "--mount", "--pid", "--", program}, args...)
}

// Output runs a bash script in the node.
func (m hostMachine) Output(ctx context.Context, script string) (string, error) {
	cmd := m.site.Command(ctx, "nsenter", m.inside("bash", "-c", script)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("run in node %s: %w: %s", m.site.hostName(), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Kill ends the node and all that is in it.
func (m hostMachine) Kill() { m.init.Kill() }

func (m hostMachine) daemon(name, program string, args ...string) error {
	p, err := m.site.Start(name, m.site.Command(context.Background(), "nsenter", m.inside(program, args...)...))
	if err != nil {
		return err
	}
	m.site.mu.Lock()
	defer m.site.mu.Unlock()
	m.site.procs = append(m.site.procs, p)
	return nil
}

// daemon starts a program of hack/tools on the host node, with its output in name.log.
func (s *Site) daemon(name, program string, args ...string) error {
	path, err := s.c.program(program)
	if err != nil {
		return err
	}
	host := s.HostNode()
	if host == nil {
		return fmt.Errorf("start %s: site %s is dead", name, s.Name())
	}
	return host.machine.daemon(name, path, args...)
}
