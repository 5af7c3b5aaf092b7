// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/weir-storage/weir/csi-driver/mount"
	"github.com/weir-storage/weir/csi-driver/node"
)

// life is one process of the node plugin. It is killed at one of its steps, before or after the
// step has happened. From then on nothing that it does has an effect.
type life struct {
	node.Mounter
	node.Gateway
	mu    sync.Mutex
	steps int
	kill  int // the step; 0: never
	after bool
	dead  bool
}

var errKilled = errors.New("killed")

// step does one thing that another process, or the kernel, sees.
func (l *life) step(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errKilled
	}
	l.steps++
	if l.steps != l.kill {
		return f()
	}
	l.dead = true
	if l.after {
		_ = f()
	}
	return errKilled
}

func (l *life) Mounts() (m []mount.Point, err error) {
	return m, l.step(func() error { m, err = l.Mounter.Mounts(); return err })
}
func (l *life) Mount(source, path string, vfs []string, data string) error {
	return l.step(func() error { return l.Mounter.Mount(source, path, vfs, data) })
}
func (l *life) Bind(from, path string, readOnly bool, options []string) error {
	return l.step(func() error { return l.Mounter.Bind(from, path, readOnly, options) })
}
func (l *life) Unmount(path string, how mount.How) error {
	return l.step(func() error { return l.Mounter.Unmount(path, how) })
}
func (l *life) Directory(path string, there bool) error {
	return l.step(func() error { return l.Mounter.Directory(path, there) })
}
func (l *life) Admit(ctx context.Context, r node.AdmitRequest) (x node.Export, err error) {
	return x, l.step(func() error { x, err = l.Gateway.Admit(ctx, r); return err })
}
func (l *life) identify(string) error { return l.step(func() error { return nil }) }
func (l *life) LookupNetIP(ctx context.Context, network, host string) (a []netip.Addr, err error) {
	return a, l.step(func() error { a, err = hosts{"gateway.weir": "10.0.0.9"}.LookupNetIP(ctx, network, host); return err })
}

// stage is a volume that is attached to a node, and paths for it.
type stage struct {
	w       *world
	handle  string
	staging string
	pods    string
}

func newStage(t *testing.T, mode csi.VolumeCapability_AccessMode_Mode) *stage {
	t.Helper()
	w := newWorld(t)
	w.operate(t)
	s := &stage{w: w, handle: w.create(t, "pvc-1", nil), pods: t.TempDir()}
	s.staging = filepath.Join(s.pods, "staging")
	w.publish(t, s.handle, testNode, testNamespace, mode, false)
	return s
}

func (s *stage) target(pod string) string { return filepath.Join(s.pods, pod, "mount") }

func capability(m csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
	}
}

const (
	manyWriters = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	manyReaders = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	onePod      = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	oneNode     = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
)

func (s *stage) stage(n *node.Server) error {
	_, err := n.NodeStageVolume(context.Background(), &csi.NodeStageVolumeRequest{
		VolumeId: s.handle, StagingTargetPath: s.staging, VolumeCapability: capability(manyWriters, "noexec")})
	return err
}

func (s *stage) unstage(n *node.Server) error {
	_, err := n.NodeUnstageVolume(context.Background(), &csi.NodeUnstageVolumeRequest{VolumeId: s.handle, StagingTargetPath: s.staging})
	return err
}

func (s *stage) publish(n *node.Server, pod string, m csi.VolumeCapability_AccessMode_Mode, readOnly bool) error {
	_, err := n.NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{
		VolumeId: s.handle, StagingTargetPath: s.staging, TargetPath: s.target(pod), VolumeCapability: capability(m), Readonly: readOnly,
		VolumeContext: map[string]string{podNamespace: testNamespace}})
	return err
}

func (s *stage) unpublish(n *node.Server, pod string) error {
	_, err := n.NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{VolumeId: s.handle, TargetPath: s.target(pod)})
	return err
}

// mounted lists the mounts below the stage's directory, and the directories that exist.
func (s *stage) mounted(t *testing.T, m node.Mounter) string {
	t.Helper()
	all, err := m.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range all {
		if rest, ok := strings.CutPrefix(m.Path, s.pods+"/"); ok {
			out = append(out, fmt.Sprintf("%s ro=%v noexec=%v", rest, m.ReadOnly(), slices.Contains(m.Options, "noexec")))
		}
	}
	slices.Sort(out)
	for _, pod := range []string{"writer", "reader"} {
		if _, err := os.Lstat(s.target(pod)); err == nil {
			out = append(out, "directory of "+pod)
		}
	}
	return strings.Join(out, "; ")
}

// TestKilled kills the plugin at every step of every call, before and after the step, twice in a
// row. Then it repeats the call or makes the opposite one, which must end as it would undisturbed.
func TestKilled(t *testing.T) {
	type call struct {
		name     string
		do, undo func(s *stage, n *node.Server) error
	}
	stageCall := call{"stage", (*stage).stage, (*stage).unstage}
	write := call{"publish",
		func(s *stage, n *node.Server) error { return s.publish(n, "writer", manyWriters, false) },
		func(s *stage, n *node.Server) error { return s.unpublish(n, "writer") }}
	read := call{"publish read-only",
		func(s *stage, n *node.Server) error { return s.publish(n, "reader", manyWriters, true) },
		func(s *stage, n *node.Server) error { return s.unpublish(n, "reader") }}
	opposite := func(c call) call { return call{"opposite of " + c.name, c.undo, c.do} }
	story := []call{stageCall, write, read, opposite(write), opposite(read), opposite(stageCall)}

	m := newMounter(t)
	for i, c := range story {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, manyWriters)
			live := func(kill int, after bool) (*node.Server, *life) {
				l := &life{Mounter: m, Gateway: s.w.gateway, kill: kill, after: after}
				cfg := nodeConfig(s.w, l)
				cfg.Gateway, cfg.Resolver, cfg.SetIdentifier = l, l, l.identify
				return newNode(t, cfg), l
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			// before makes the calls of the story that come before this one.
			before := func() {
				n, _ := live(0, false)
				for _, c := range story[:i] {
					must(c.do(s, n))
				}
			}
			clean := func() {
				n, _ := live(0, false)
				must(s.unpublish(n, "writer"))
				must(s.unpublish(n, "reader"))
				must(s.unstage(n))
				_ = os.RemoveAll(s.staging)
			}
			before()
			start := s.mounted(t, m)
			n, l := live(0, false)
			must(c.do(s, n))
			goal, steps := s.mounted(t, m), l.steps
			must(c.do(s, n))
			if now := s.mounted(t, m); now != goal {
				t.Fatalf("repeating changed %q to %q", goal, now)
			}
			clean()

			killed := 0
			for first := 1; first <= steps; first++ {
				for _, after := range []bool{false, true} {
					for second := 0; second <= steps; second++ {
						before()
						n, _ := live(first, after)
						if err := c.do(s, n); err == nil {
							t.Fatalf("step %d, after %v: killed, and it says it succeeded", first, after)
						}
						if second > 0 {
							n, l := live(second, after)
							if err := c.do(s, n); err == nil && l.dead {
								t.Fatalf("step %d after step %d: killed, and it says it succeeded", second, first)
							}
						}
						killed++
						n, _ = live(0, false)
						if second%2 == 0 || i > 0 && strings.HasPrefix(c.name, "opposite of stage") {
							if err := c.do(s, n); err != nil {
								t.Fatalf("killed at step %d (after %v) and %d: repeated: %v", first, after, second, err)
							}
							if now := s.mounted(t, m); now != goal {
								t.Fatalf("killed at step %d (after %v) and %d: %q, want %q", first, after, second, now, goal)
							}
						} else {
							if err := c.undo(s, n); err != nil {
								t.Fatalf("killed at step %d (after %v) and %d: opposite: %v", first, after, second, err)
							}
							if now := s.mounted(t, m); now != start {
								t.Fatalf("killed at step %d (after %v) and %d, and undone: %q, want %q", first, after, second, now, start)
							}
						}
						clean()
					}
				}
			}
			t.Logf("%d steps, killed %d times", steps, killed)
		})
	}
}
