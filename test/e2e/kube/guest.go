// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	_ "embed" // scripts that nodes run
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-storage/weir/test/e2e/stage"
)

//go:embed node/guest.sh
var guestScript string

// diskSize is that of a guest's disk, in bytes; only what is used takes room.
const diskSize = 8 << 30

// guestMachine is a guest as a node.
type guestMachine struct{ *stage.Guest }

// Output runs a bash script in the guest. Unlike the guest's own, its error does not repeat the
// script.
func (m guestMachine) Output(ctx context.Context, script string) (string, error) {
	job, err := m.begin(ctx, ctx, script)
	if err != nil {
		return "", err
	}
	res, err := job.Wait(ctx)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("run in node %s: code %d: %s", m.Name(), res.Code, strings.TrimSpace(res.Stderr))
	}
	return strings.TrimPrefix(res.Stdout, begun), err
}

func (m guestMachine) daemon(name, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	script := fmt.Sprintf("PATH=/run/weir/bin:$PATH exec %s >>/x/%s.log 2>&1", quote(append([]string{program}, args...)), name)
	_, err := m.begin(ctx, context.Background(), script)
	return err
}

// begun is what a script prints first.
const begun = "begun\n"

// begin starts a script, whose end is at the latest that of life, and returns when it runs.
func (m guestMachine) begin(ctx, life context.Context, script string) (*stage.GuestJob, error) {
	job, err := m.Start(life, "echo begun\n"+script)
	if err != nil {
		return nil, err
	}
	for !strings.HasPrefix(job.Stdout(), begun) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("run in node %s: it does not begin: %w", m.Name(), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return job, nil
}

// startGuest boots the site's guest, if it is to have one, and starts the node's programs in it.
func (s *Site) startGuest(ctx context.Context, begin time.Time) error {
	if !s.hasGuest {
		return nil
	}
	g, err := s.Site.Guest(ctx, s.guestName(), s.c.cfg.GuestMemory)
	if err != nil {
		return err
	}
	n := &Node{Name: s.guestName(), Addr: g.Addr(), site: s, machine: guestMachine{g}, number: 2, disk: "/n/containerd", isGuest: true}
	s.addNode(n)
	if err := makeDisk(ctx, filepath.Join(g.Shared(), "disk")); err != nil {
		return err
	}
	args := quote([]string{s.PodRange(), s.nodePods(2), s.nodePods(1), s.Addr()})
	if _, err := n.Output(ctx, "set -- "+args+"\n"+guestScript); err != nil {
		return err
	}
	if out, err := s.Command(ctx, "ip", "route", "replace", s.nodePods(2), "via", g.Addr()).CombinedOutput(); err != nil {
		return fmt.Errorf("set route to node %s: %w: %s", n.Name, err, out)
	}
	return s.startNode(ctx, n, begin)
}

// makeDisk makes an empty file system in a file, unless it is there.
func makeDisk(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", file).CombinedOutput(); err != nil {
		return fmt.Errorf("make disk %s: %w: %s", file, err, out)
	}
	return nil
}

// quote makes one line of shell of arguments.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
