// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// ServerConfig says how a server is reached and how it ends.
type ServerConfig struct {
	// Endpoint is the path of a socket, perhaps with unix:// before it. Serve replaces a socket
	// that exists: a predecessor left it.
	Endpoint string
	Log      *slog.Logger
	// Grace is how long calls in flight may take when the server ends; 0: 10 s.
	Grace time.Duration
	// Observe is told when a call begins, and calls what it returns when it ends; nil: nobody is.
	Observe func(method string) (ended func(error))
	// After is time.After.
	After func(time.Duration) <-chan time.Time
}

// Serve serves what register registers, such as csi.RegisterNodeServer, until ctx is done. Then it
// lets calls in flight finish, for Grace. It leaves the socket: a successor may have replaced it by
// its own already.
func Serve(ctx context.Context, cfg ServerConfig, register func(grpc.ServiceRegistrar)) error {
	if cfg.Log == nil || cfg.After == nil {
		return fmt.Errorf("serve %s: a log and a clock are needed", cfg.Endpoint)
	}
	if cfg.Grace == 0 {
		cfg.Grace = 10 * time.Second
	}
	l, err := listen(cfg.Endpoint)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(logged(cfg.Log), observed(cfg.Observe)))
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", cfg.Endpoint, err)
	case <-ctx.Done():
	}
	ended := make(chan struct{})
	go func() { defer close(ended); s.GracefulStop() }()
	select {
	case <-ended:
	case <-cfg.After(cfg.Grace):
		s.Stop()
		<-ended
	}
	return nil
}

// listen makes a socket, and its directory.
func listen(endpoint string) (net.Listener, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("endpoint is %q: write unix:///PATH", endpoint)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen at %s: something is there that is no socket: remove it, or choose another path", path)
	default:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of a predecessor: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// logged writes a line of the log for each call (csi-9).
func logged(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		r, err := handle(ctx, q)
		method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
		a := append([]any{"call", method}, about(q)...)
		switch {
		case err != nil:
			log.WarnContext(ctx, "call failed", append(a, "code", status.Code(err).String(), "error", status.Convert(err).Message())...)
		case strings.Contains(method, "Get") || method == "Probe" || strings.HasPrefix(method, "List"):
			log.DebugContext(ctx, "call", a...)
		default:
			log.InfoContext(ctx, "call", a...)
		}
		return r, err
	}
}

// observed tells of each call.
func observed(observe func(string) func(error)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if observe == nil {
			return handle(ctx, q)
		}
		ended := observe(info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:])
		r, err := handle(ctx, q)
		ended(err)
		return r, err
	}
}

// about picks the fields of a request that the log may have.
func about(q any) []any {
	var a []any
	add := func(key, value string) {
		if value != "" {
			a = append(a, key, value)
		}
	}
	if m, ok := q.(interface{ GetName() string }); ok {
		add("name", m.GetName())
	}
	if m, ok := q.(interface{ GetVolumeId() string }); ok {
		add("volume", m.GetVolumeId())
	}
	if m, ok := q.(interface{ GetSourceVolumeId() string }); ok {
		add("volume", m.GetSourceVolumeId())
	}
	if m, ok := q.(interface{ GetSnapshotId() string }); ok {
		add("snapshot", m.GetSnapshotId())
	}
	if m, ok := q.(interface{ GetSourceVolumeIds() []string }); ok {
		add("volumes", strings.Join(m.GetSourceVolumeIds(), ","))
	}
	if m, ok := q.(interface{ GetGroupSnapshotId() string }); ok {
		add("group", m.GetGroupSnapshotId())
	}
	if m, ok := q.(interface{ GetNodeId() string }); ok {
		add("node", m.GetNodeId())
	}
	if m, ok := q.(interface{ GetStagingTargetPath() string }); ok {
		add("staging", m.GetStagingTargetPath())
	}
	if m, ok := q.(interface{ GetTargetPath() string }); ok {
		add("target", m.GetTargetPath())
	}
	return a
}
