// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
)

// freeAddr is an address of this machine where nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestAwaitCluster starts a process before its API server, which then refuses for a while.
func TestAwaitCluster(t *testing.T) {
	api, health := freeAddr(t), freeAddr(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"users: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {server: \"http://" + api + "\"}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Options{Health: health, Kubeconfig: file}
	sh := &cli.Shell{Pause: machine.Pause}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type result struct {
		cfg *rest.Config
		err error
	}
	done := make(chan result, 1)
	go func() {
		cfg, err := p.AwaitCluster(ctx, sh, slog.New(slog.NewTextHandler(t.Output(), nil)))
		done <- result{cfg, err}
	}()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		for {
			res, err := http.Get("http://" + health + path)
			if err == nil {
				_, _ = io.Copy(io.Discard, res.Body) // so that the connection can be closed
				_ = res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("%s: %s, want %d", path, res.Status, want)
				}
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	asked := 0
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			http.Error(w, "starting", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}`) // the client notices a failed write
	})}
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Close() }()
	got := <-done
	if got.err != nil || got.cfg.Host != "http://"+api || asked < 2 {
		t.Fatalf("%+v, asked %d times", got, asked)
	}
	if l, err := lc.Listen(ctx, "tcp", health); err != nil {
		t.Errorf("the address of the probes is still taken: %v", err)
	} else {
		_ = l.Close()
	}

	// A process that must end stops waiting.
	ended, stop := context.WithCancel(ctx)
	_ = s.Close()
	go func() {
		_, err := p.AwaitCluster(ended, sh, slog.New(slog.DiscardHandler))
		done <- result{nil, err}
	}()
	stop()
	if got := <-done; got.err == nil {
		t.Error("no error although its context ended")
	}
}
