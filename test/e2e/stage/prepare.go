// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const modulePath = "github.com/weir-storage/weir"

// ModuleRoot finds the root of the Weir source tree that holds the folder dir.
func ModuleRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find source tree: %w", err)
	}
	for d := abs; ; d = filepath.Dir(d) {
		b, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module "+modulePath+"\n") {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find source tree: %s is not in it: run this in a clone of the project", abs)
		}
	}
}

// Prepare installs and builds all that a stage needs and lacks, and returns the folder of the
// programs, for Config.BinDir. It runs hack/install-deps and hack/tools/build of the source tree at
// root, which write their progress to w. It takes a second when there is nothing to do, and minutes
// the first time.
func Prepare(ctx context.Context, root string, w io.Writer) (binDir string, err error) {
	build := filepath.Join(root, "hack/tools/build")
	for _, args := range [][]string{{filepath.Join(root, "hack/install-deps")}, {build, "etcd", "s3"}} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("prepare stage: %s: %w", strings.Join(args, " "), err)
		}
	}
	out, err := run(ctx, "", build, "-p")
	if err != nil {
		return "", fmt.Errorf("prepare stage: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// program finds a program of BinDir.
func (s *Stage) program(name string) (string, error) {
	if s.bin == "" {
		return "", errors.New("Config.BinDir is empty: set it to what Prepare returns")
	}
	path := filepath.Join(s.bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run hack/tools/build", err)
	}
	return path, nil
}

// Test prepares and builds a stage for a test and takes it down at its end, also when the test is
// interrupted. Test skips the test unless root runs it. When the test fails, Test keeps the stage's
// logs and logs their folder.
func Test(t testing.TB, sites ...string) *Stage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and virtual machines need root: run it with sudo")
	}
	root, err := ModuleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bin, err := Prepare(ctx, root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "weir-stage-")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := Up(ctx, Config{Sites: sites, StateDir: dir, Log: log, BinDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Down(); err != nil {
			t.Error(err)
		}
		interrupted := ctx.Err() != nil
		stop()
		if t.Failed() && !interrupted {
			t.Logf("logs are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	// An interrupted test would go on without its stage until its deadline.
	go func() {
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), context.Canceled) && t.Context().Err() == nil {
			_ = s.Down()
			os.Exit(130)
		}
	}()
	return s
}
