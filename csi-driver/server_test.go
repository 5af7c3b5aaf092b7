// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	wantOK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func serverConfig(path string, log *bytes.Buffer) ServerConfig {
	return ServerConfig{Endpoint: "unix://" + path, Log: slog.New(slog.NewTextHandler(log, nil)), After: never}
}

// slow is a node server whose unstaging waits for release.
type slow struct {
	csi.UnimplementedNodeServer
	began, release chan struct{}
}

func (s slow) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	s.began <- struct{}{}
	<-s.release
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// TestRollingUpgrade: a successor replaces the socket while its predecessor finishes its calls. The
// predecessor's end does not remove the new socket.
func TestRollingUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "csi.sock")
	first := slow{began: make(chan struct{}), release: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, serverConfig(path, &log), func(s grpc.ServiceRegistrar) { csi.RegisterNodeServer(s, first) })
	}()
	call := make(chan error, 1)
	go func() {
		_, err := csi.NewNodeClient(dial(t, path)).NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v"})
		call <- err
	}()
	<-first.began

	next, stopNext := context.WithCancel(t.Context())
	endedNext := make(chan error, 1)
	var nextLog bytes.Buffer
	go func() {
		endedNext <- Serve(next, serverConfig(path, &nextLog), func(s grpc.ServiceRegistrar) {
			csi.RegisterIdentityServer(s, NewIdentity("2", nil))
		})
	}()
	waitFor(t, func() bool {
		r, err := csi.NewIdentityClient(dial(t, path)).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
		return err == nil && r.GetVendorVersion() == "2"
	})
	stop()
	close(first.release)
	wantOK(t, <-call)
	wantOK(t, <-ended)
	r, err := csi.NewIdentityClient(dial(t, path)).Probe(t.Context(), &csi.ProbeRequest{})
	if err != nil || !r.GetReady().GetValue() {
		t.Errorf("the successor: %v, %v", r, err)
	}
	stopNext()
	wantOK(t, <-endedNext)
}

// waitFor tries until it is so; the test's deadline ends it else.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-t.Context().Done():
			t.Fatal("it never came")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestGrace: a call that does not end is cut off.
func TestGrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "csi.sock")
	first := slow{began: make(chan struct{}), release: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan time.Time)
	var log bytes.Buffer
	cfg := serverConfig(path, &log)
	cfg.After = func(time.Duration) <-chan time.Time { return over }
	ended, call := make(chan error, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, cfg, func(s grpc.ServiceRegistrar) { csi.RegisterNodeServer(s, first) })
	}()
	go func() {
		_, err := csi.NewNodeClient(dial(t, path)).NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{})
		call <- err
	}()
	<-first.began
	stop()
	over <- time.Time{}
	wantCode(t, <-call, codes.Unavailable)
	close(first.release)
	wantOK(t, <-ended)
}

func TestEndpoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	wantOK(t, os.WriteFile(file, nil, 0o600))
	for endpoint, says := range map[string]string{"csi.sock": "unix:///PATH", file: "no socket", "tcp://1": "unix:///PATH"} {
		l, err := listen(endpoint)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", endpoint, err, says)
		}
	}
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	wantOK(t, err)
	l.SetUnlinkOnClose(false)
	wantOK(t, l.Close())
	again, err := listen(stale)
	wantOK(t, err)
	wantOK(t, again.Close())
}

func TestLogHasNoSecrets(t *testing.T) {
	var log bytes.Buffer
	h := logged(slog.New(slog.NewTextHandler(&log, nil)))
	q := &csi.NodeStageVolumeRequest{VolumeId: "fed/1", StagingTargetPath: "/staging", Secrets: map[string]string{"password": "hunter2"},
		VolumeContext: map[string]string{"token": "hunter2"}, PublishContext: map[string]string{"token": "hunter2"}}
	for _, err := range []error{nil, rpc.Missing("volume_id")} {
		info := &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"}
		_, got := h(t.Context(), q, info, func(context.Context, any) (any, error) { return nil, err })
		if got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	text := log.String()
	both := strings.Count(text, "volume=fed/1 staging=/staging") == 2
	if strings.Contains(text, "hunter2") || !both || !strings.Contains(text, "code=InvalidArgument") {
		t.Errorf("the log: %s", text)
	}
}

func TestRegistration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reg.sock")
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- ServeRegistration(t.Context(), serverConfig(path, &log), "/var/lib/kubelet/plugins/csi.weir.dev/csi.sock")
	}()
	c := registration.NewRegistrationClient(dial(t, path))
	i, err := c.GetInfo(t.Context(), &registration.InfoRequest{})
	wantOK(t, err)
	if i.GetType() != "CSIPlugin" || i.GetName() != "csi.weir.dev" || i.GetEndpoint() != "/var/lib/kubelet/plugins/csi.weir.dev/csi.sock" ||
		len(i.GetSupportedVersions()) != 1 || i.GetSupportedVersions()[0] != "1.0.0" {
		t.Errorf("%v", i)
	}
	_, err = c.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
	wantOK(t, err)
	_, err = c.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "no such node"})
	wantOK(t, err)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no such node") {
		t.Errorf("ended with %v", err)
	}
}
