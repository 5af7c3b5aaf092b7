// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
	"github.com/weir-storage/weir/csi-driver/mount"
)

func wantCode(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want code %v", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

func wantOK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadOnly: there are three ways to publish a volume read-only. No pod that uses one of them
// can write, while others write.
func TestReadOnly(t *testing.T) {
	m := newMounter(t)
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, m))
	wantOK(t, s.stage(n))
	t.Cleanup(func() {
		for _, pod := range []string{"flag", "mode", "option", "writer"} {
			wantOK(t, s.unpublish(n, pod))
		}
		wantOK(t, s.unstage(n))
	})
	wantOK(t, s.publish(n, "flag", manyWriters, true))
	wantOK(t, s.publish(n, "mode", manyReaders, false))
	_, err := n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: s.handle, StagingTargetPath: s.staging, TargetPath: s.target("option"), VolumeCapability: capability(manyWriters, "ro"),
		VolumeContext: map[string]string{podNamespace: testNamespace}})
	wantOK(t, err)
	wantOK(t, s.publish(n, "writer", manyWriters, false))
	mounts, err := m.Mounts()
	wantOK(t, err)
	for pod, readOnly := range map[string]bool{"flag": true, "mode": true, "option": true, "writer": false} {
		if p, ok := mount.At(mounts, s.target(pod)); !ok || p.ReadOnly() != readOnly || !slices.Contains(p.Options, "noexec") {
			t.Errorf("%s: mounted %v, %v; want read-only %v, and noexec kept", pod, ok, p, readOnly)
		}
	}
	wantCode(t, s.publish(n, "flag", manyWriters, false), codes.AlreadyExists, "read-only", "unpublish")

	// A writable mount is made read-only: a kill between the two steps leaves a writable one.
	wantOK(t, s.unpublish(n, "flag"))
	wantOK(t, s.publish(n, "flag", manyWriters, false))
	wantOK(t, s.publish(n, "flag", manyWriters, true))
	if _, inMemory := m.(*table); inMemory {
		return
	}
	if err := os.WriteFile(filepath.Join(s.target("writer"), "f"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	for _, pod := range []string{"flag", "mode", "option"} {
		if err := os.WriteFile(filepath.Join(s.target(pod), "g"), []byte("x"), 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: write: %v, want a read-only file system", pod, err)
		}
		if err := os.Remove(filepath.Join(s.target(pod), "f")); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: remove: %v, want a read-only file system", pod, err)
		}
	}
}

// TestKernel looks at what only the kernel can show: names in mountinfo, and that it does not
// remove a directory in use.
func TestKernel(t *testing.T) {
	m := newMounter(t)
	if _, inMemory := m.(*table); inMemory {
		t.Skip("runs with TestPrivateMounts")
	}
	dir := filepath.Join(t.TempDir(), `a b\c`)
	wantOK(t, m.Directory(dir, true))
	wantOK(t, m.Directory(dir, true))
	wantOK(t, m.Mount("10.0.0.1:/team.data", dir, []string{"nosuid"}, ""))
	mounts, err := m.Mounts()
	wantOK(t, err)
	p, ok := mount.At(mounts, dir)
	if !ok || p.Source != "10.0.0.1:/team.data" || !slices.Contains(p.Options, "nosuid") || p.Root != "/" ||
		!strings.Contains(p.Device, ":") {
		t.Errorf("mountinfo has %v, %v", ok, p)
	}
	if err := m.Directory(dir, false); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("remove a mount's directory: %v, want busy", err)
	}
	busy, err := os.Open(dir)
	wantOK(t, err)
	if err := m.Unmount(dir, mount.Normal); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("unmount what is open: %v, want busy", err)
	}
	wantOK(t, m.Unmount(dir, mount.Lazy))
	wantOK(t, busy.Close())
	if err := m.Unmount(dir, mount.Normal); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unmount what is not mounted: %v", err)
	}
	wantOK(t, m.Directory(dir, false))
	wantOK(t, m.Directory(dir, false))
}

// TestStacked: mounts that lie above each other all come off.
func TestStacked(t *testing.T) {
	m := newMounter(t)
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, m))
	wantOK(t, s.stage(n))
	wantOK(t, m.Mount("10.0.0.9:/pvc-1", s.staging, nil, ""))
	wantOK(t, m.Bind(s.staging, s.staging, false, nil))
	wantOK(t, s.unstage(n))
	if now := s.mounted(t, m); now != "" {
		t.Errorf("left: %s", now)
	}
}

func TestOnePod(t *testing.T) {
	m := newMounter(t)
	s := newStage(t, onePod)
	n := newNode(t, nodeConfig(s.w, m))
	wantOK(t, s.stage(n))
	wantOK(t, s.publish(n, "first", onePod, false))
	wantOK(t, s.publish(n, "first", onePod, false))
	wantCode(t, s.publish(n, "second", onePod, false), codes.FailedPrecondition, s.target("first"), "one pod")
	// What the kubelet binds for a container's subPath is the same pod's.
	sub := filepath.Join(s.pods, "first", "volume-subpaths", "0")
	wantOK(t, m.Directory(sub, true))
	wantOK(t, m.Bind(s.staging, sub, false, nil))
	wantOK(t, s.publish(n, "first", onePod, false))
	wantOK(t, m.Unmount(sub, mount.Normal))
	wantOK(t, s.unpublish(n, "first"))
	wantOK(t, s.publish(n, "second", onePod, false))
	wantOK(t, s.unpublish(n, "second"))
	wantOK(t, s.unstage(n))
}

func TestPublishAsksForWhom(t *testing.T) {
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, &table{}))
	publish := func(context map[string]string) error {
		_, err := n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: s.handle, StagingTargetPath: s.staging, TargetPath: s.target("p"),
			VolumeCapability: capability(manyWriters), VolumeContext: context})
		return err
	}
	wantCode(t, publish(map[string]string{podNamespace: testNamespace}), codes.FailedPrecondition, "not staged")
	wantOK(t, s.stage(n))
	wantCode(t, publish(nil), codes.InvalidArgument, podNamespace, "podInfoOnMount")
	wantCode(t, publish(map[string]string{podNamespace: "strangers"}), codes.PermissionDenied, "strangers", "claim")
	wantCode(t, publish(map[string]string{podNamespace: testNamespace, ephemeral: "true"}), codes.InvalidArgument, "PersistentVolumeClaim")
	if _, err := os.Lstat(s.target("p")); err == nil {
		t.Error("who was refused has a directory")
	}
	wantOK(t, publish(map[string]string{podNamespace: testNamespace}))
	wantOK(t, s.w.attachments.Attach(t.Context(), idOf(s.handle), testNode, true))
	wantCode(t, s.publish(n, "q", manyWriters, false), codes.FailedPrecondition, "ReadOnlyMany")
	wantOK(t, s.publish(n, "q", manyReaders, false))
	wantOK(t, s.w.attachments.Detach(t.Context(), idOf(s.handle), testNode))
	wantCode(t, s.publish(n, "r", manyReaders, false), codes.PermissionDenied, "not attached")
	wantCode(t, s.stage(n), codes.PermissionDenied, "not attached")
}

func idOf(handle string) string { id, _ := rpc.VolumeID(handle, testFederation); return id }

// TestReadOnlyFails: a mount that cannot be made read-only does not stay writable.
func TestReadOnlyFails(t *testing.T) {
	s := newStage(t, manyWriters)
	m := &table{remount: syscall.EPERM}
	n := newNode(t, nodeConfig(s.w, m))
	wantOK(t, s.stage(n))
	staged := s.mounted(t, m)
	wantCode(t, s.publish(n, "reader", manyReaders, false), codes.PermissionDenied, "privileged")
	if now, want := s.mounted(t, m), staged+"; directory of reader"; now != want {
		t.Errorf("left: %s, want %s", now, want)
	}
}

func TestMountGroup(t *testing.T) {
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, &table{}))
	stage := func(c *csi.VolumeCapability, group string) error {
		c.GetMount().VolumeMountGroup = group
		_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: s.handle, StagingTargetPath: s.staging, VolumeCapability: c})
		return err
	}
	wantOK(t, stage(capability(manyReaders), "7"))
	if g := s.w.gateway.groups[idOf(s.handle)]; g != "" {
		t.Errorf("a reader changed the group to %s", g)
	}
	wantOK(t, stage(capability(manyWriters), "2000"))
	if g := s.w.gateway.groups[idOf(s.handle)]; g != "2000" {
		t.Errorf("the group is %q", g)
	}
	wantCode(t, stage(capability(manyWriters), "staff"), codes.InvalidArgument, "volume_mount_group", "staff")
}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		flags  []string
		refuse map[string]error
		tried  string
		code   codes.Code
	}{
		"newest": {tried: "4.2"},
		"older":  {refuse: map[string]error{"4.2": syscall.EPROTONOSUPPORT}, tried: "4.2 4.1"},
		"chosen": {flags: []string{"nfsvers=4.1"}, tried: "4.1"},
		"none": {refuse: map[string]error{"4.2": syscall.EPROTONOSUPPORT, "4.1": syscall.EPROTONOSUPPORT}, tried: "4.2 4.1",
			code: codes.Internal},
		"no NFS":         {refuse: map[string]error{"4": syscall.ENODEV}, tried: "4.2", code: codes.FailedPrecondition},
		"refused":        {refuse: map[string]error{"4": syscall.EACCES}, tried: "4.2", code: codes.PermissionDenied},
		"nobody answers": {refuse: map[string]error{"4": syscall.ECONNREFUSED}, tried: "4.2", code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, manyWriters)
			m := &table{refuse: c.refuse}
			cfg := nodeConfig(s.w, m)
			cfg.NConnect = 4
			identity := ""
			cfg.SetIdentifier = func(id string) error { identity = id; return nil }
			n := newNode(t, cfg)
			_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
				VolumeId: s.handle, StagingTargetPath: s.staging, VolumeCapability: capability(manyWriters, c.flags...)})
			wantCode(t, err, c.code)
			var tried []string
			for _, d := range m.data {
				v, rest, _ := strings.Cut(strings.TrimPrefix(d, "vers="), ",")
				tried = append(tried, v)
				if rest != "addr=10.0.0.9,hard,proto=tcp,noresvport,timeo=150,retrans=2,nconnect=4" {
					t.Errorf("options: %s", d)
				}
			}
			if got := strings.Join(tried, " "); got != c.tried {
				t.Errorf("tried %s, want %s", got, c.tried)
			}
			if identity != testCluster+"/node-uid" {
				t.Errorf("the client is called %q", identity)
			}
		})
	}
}

// A node that mounts over TLS says so to the gateway, and to the kernel, with the name that the
// gateway's certificate has to have.
func TestStageOverTLS(t *testing.T) {
	for _, refused := range []error{nil, syscall.EACCES} {
		s := newStage(t, manyWriters)
		m := &table{refuse: map[string]error{}}
		if refused != nil {
			m.refuse["4"] = refused
		}
		cfg := nodeConfig(s.w, m)
		cfg.TLSName = "weir.gateway.svc"
		n := newNode(t, cfg)
		q := &csi.NodeStageVolumeRequest{VolumeId: s.handle, StagingTargetPath: s.staging, VolumeCapability: capability(manyWriters)}
		_, err := n.NodeStageVolume(t.Context(), q)
		if refused != nil {
			wantCode(t, err, codes.PermissionDenied)
			if !strings.Contains(err.Error(), "tlshd") || !strings.Contains(err.Error(), "weir preflight --nfs-tls") {
				t.Errorf("the error is %v", err)
			}
			continue
		}
		wantCode(t, err, codes.OK)
		if len(m.data) != 1 || !strings.HasSuffix(m.data[0], ",addr=10.0.0.9,hard,proto=tcp,noresvport,timeo=150,retrans=2,xprtsec=mtls") {
			t.Errorf("options: %q", m.data)
		}
		points, err := m.Mounts()
		if p, ok := mount.At(points, s.staging); err != nil || !ok || !strings.HasPrefix(p.Source, "weir.gateway.svc:/") {
			t.Errorf("mounted is %v (%v)", points, err)
		}
		if asked := s.w.gateway.asked; !asked.TLS {
			t.Errorf("the gateway was asked %+v", asked)
		}
		// Publishing says so too.
		if err := s.publish(n, "p", manyWriters, false); err != nil || !s.w.gateway.asked.TLS {
			t.Errorf("published: %v, and the gateway was asked %+v", err, s.w.gateway.asked)
		}
		// It is mounted, and stays so.
		_, err = n.NodeStageVolume(t.Context(), q)
		wantCode(t, err, codes.OK)
		if len(m.data) != 1 {
			t.Errorf("mounted again: %q", m.data)
		}
	}
}

// stuck is a kernel in which some calls hang until release is closed.
type stuck struct {
	*table
	began   chan struct{}
	release chan struct{}
	mounts  bool
	hangs   []mount.How
}

func (k *stuck) Mount(source, path string, vfs []string, data string) error {
	if k.mounts {
		k.began <- struct{}{}
		<-k.release
	}
	return k.table.Mount(source, path, vfs, data)
}

func (k *stuck) Unmount(path string, how mount.How) error {
	if slices.Contains(k.hangs, how) {
		k.began <- struct{}{}
		<-k.release
		return nil
	}
	return k.table.Unmount(path, how)
}

// TestHungMount: while a mount hangs, another is refused, and the volume can be unstaged. The mount
// that hung does not appear later.
func TestHungMount(t *testing.T) {
	s := newStage(t, manyWriters)
	k := &stuck{table: &table{}, began: make(chan struct{}, 8), release: make(chan struct{}), mounts: true}
	over := make(chan time.Time)
	cfg := nodeConfig(s.w, k)
	cfg.After = func(time.Duration) <-chan time.Time { return over }
	n := newNode(t, cfg)
	result := make(chan error)
	go func() { result <- s.stage(n) }()
	<-k.began
	wantCode(t, s.stage(n), codes.Aborted, "under way")
	over <- time.Time{}
	wantCode(t, <-result, codes.DeadlineExceeded, "does not return")
	wantCode(t, s.stage(n), codes.Aborted, "not over")
	wantOK(t, s.unstage(n))
	if _, err := os.Lstat(s.staging); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a mount that hangs is there: %v", err)
	}
	close(k.release)
	k.mounts = false
	wantOK(t, s.stage(n))
	wantOK(t, s.unstage(n))
	if now := s.mounted(t, k.table); now != "" {
		t.Errorf("left: %s", now)
	}
}

// TestUnmount: normal, forced, lazy; and never forced while other pods use the file system.
func TestUnmount(t *testing.T) {
	s := newStage(t, manyWriters)
	k := &stuck{table: &table{}, began: make(chan struct{}, 8), release: make(chan struct{})}
	over := make(chan time.Time)
	cfg := nodeConfig(s.w, k)
	cfg.After = func(time.Duration) <-chan time.Time { return over }
	n := newNode(t, cfg)
	t.Cleanup(func() { close(k.release) })
	wantOK(t, s.stage(n))
	wantOK(t, s.publish(n, "p", manyWriters, false))

	k.busy = map[mount.How]error{mount.Normal: syscall.EBUSY}
	wantOK(t, s.unpublish(n, "p"))
	if got := k.used; !slices.Equal(got, []mount.How{mount.Normal, mount.Lazy}) {
		t.Errorf("a pod's mount of a volume that others have was unmounted %v", got)
	}
	k.used, k.busy = nil, map[mount.How]error{mount.Normal: syscall.EBUSY, mount.Force: syscall.EBUSY, mount.Lazy: syscall.EPERM}
	wantCode(t, s.unstage(n), codes.Unavailable, s.staging, "still mounted")
	if got := k.used; !slices.Equal(got, []mount.How{mount.Normal, mount.Force, mount.Lazy}) {
		t.Errorf("a staged volume was unmounted %v", got)
	}
	k.busy, k.hangs = nil, []mount.How{mount.Normal, mount.Force}
	result := make(chan error)
	go func() { result <- s.unstage(n) }()
	for range 2 {
		<-k.began
		over <- time.Time{}
	}
	wantOK(t, <-result)
	if now := s.mounted(t, k.table); now != "" {
		t.Errorf("left: %s", now)
	}

	// The caller is gone: no harsher way begins.
	wantOK(t, s.stage(n))
	k.used = nil
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: s.handle, StagingTargetPath: s.staging})
		result <- err
	}()
	<-k.began
	cancel()
	wantCode(t, <-result, codes.DeadlineExceeded)
	if len(k.used) > 0 {
		t.Errorf("after nobody waited: %v", k.used)
	}
}

func TestStrangeMount(t *testing.T) {
	s := newStage(t, manyWriters)
	m := &table{}
	n := newNode(t, nodeConfig(s.w, m))
	wantOK(t, m.Directory(s.staging, true))
	wantOK(t, m.Mount("10.0.0.1:/other", s.staging, nil, ""))
	wantCode(t, s.stage(n), codes.FailedPrecondition, "10.0.0.1:/other", s.staging)
	wantCode(t, s.publish(n, "p", manyWriters, false), codes.FailedPrecondition, "not staged")
	wantOK(t, s.unstage(n))
	wantOK(t, s.stage(n))
	wantOK(t, m.Directory(s.target("p"), true))
	wantOK(t, m.Mount("tmpfs", s.target("p"), nil, ""))
	wantCode(t, s.publish(n, "p", manyWriters, false), codes.FailedPrecondition, "tmpfs", s.target("p"))

	// Without the gateway nothing can be staged, and what is staged can be unstaged.
	s.w.gateway.fail = errors.New("connection refused")
	wantCode(t, s.stage(n), codes.Unavailable, "connection refused")
	s.w.gateway.fail = status.Error(codes.ResourceExhausted, "too many")
	wantCode(t, s.stage(n), codes.ResourceExhausted)
	s.w.gateway.fail = status.Error(codes.FailedPrecondition, "another node has the address")
	wantCode(t, s.stage(n), codes.FailedPrecondition)
	wantOK(t, s.unpublish(n, "p"))
	wantOK(t, s.unstage(n))
}

func TestHealthOfNode(t *testing.T) {
	s := newStage(t, manyWriters)
	n := newNode(t, nodeConfig(s.w, &table{}))
	health := func(handle string) (string, error) {
		r, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{
			VolumeId: handle, StagingTargetPath: s.staging})
		if h := r.GetVolumeHealth().GetHealthStatuses(); len(h) > 0 {
			return h[0].GetReason(), err
		}
		return "", err
	}
	if h, err := health(s.handle); err != nil || h != "NotMounted" {
		t.Errorf("before it is staged: %s, %v", h, err)
	}
	wantOK(t, s.stage(n))
	if h, err := health(s.handle); err != nil || h != "" {
		t.Errorf("staged: %s, %v", h, err)
	}
	_, err := health(v1alpha1.VolumeHandle(testFederation, testCluster))
	wantCode(t, err, codes.NotFound)
	r, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: s.handle, VolumePath: s.staging})
	wantOK(t, err)
	if u := r.GetUsage(); len(u) != 1 || u[0].GetUnit() != csi.VolumeUsage_BYTES || u[0].GetTotal() != 10<<20 ||
		u[0].GetUsed() != 1000 || u[0].GetAvailable() != 10<<20-1000 {
		t.Errorf("usage %v", u)
	}
	s.w.gateway.unknown = true
	_, err = n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: s.handle, VolumePath: s.staging})
	wantCode(t, err, codes.Unavailable) // not that it is empty
}
