// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Tools runs zpool and zfs. Its methods may be called from many goroutines.
type Tools struct {
	// Root is the folder where the machine's own root is mounted, such as /host in a container: its
	// tools run in there (chroot(2)), and its devices are looked for there. "": they are here.
	Root string
}

// standard is where tools are beside the PATH, which is that of the container.
var standard = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"}

// command returns a tool's command.
func (t Tools) command(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if t.Root == "" {
		return cmd
	}
	cmd.Err = fmt.Errorf("%s in %s: %w", name, t.Root, exec.ErrNotFound)
	for _, folder := range append(filepath.SplitList(os.Getenv("PATH")), standard...) {
		if path := filepath.Join("/", folder, name); isFile(filepath.Join(t.Root, path)) {
			cmd.Path, cmd.Err = path, nil
			break
		}
	}
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: t.Root}
	return cmd
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// toolTime bounds one command. On a pool that lost its devices a command may hang for ever.
// longTime bounds one that may do much: import and make a pool, mount a dataset.
const (
	toolTime = 30 * time.Second
	longTime = 10 * time.Minute
)

var errNoDataset = errors.New("dataset does not exist")

func (t Tools) zfs(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "zfs", args)
}

func (t Tools) zpool(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "zpool", args)
}

func (t Tools) run(ctx context.Context, name string, args []string) (string, error) {
	limit := toolTime
	if slices.Contains([]string{"import", "create", "mount"}, args[0]) {
		limit = longTime
	}
	return t.runFor(ctx, limit, name, args)
}

// runFor runs a command for at most that long. One that hangs in the kernel is left behind.
func (t Tools) runFor(ctx context.Context, limit time.Duration, name string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := t.command(ctx, name, args)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC") // a history has local times
	cmd.WaitDelay = time.Second                          // what it started may have its pipes
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(2 * cmd.WaitDelay):
			return "", fmt.Errorf("%s %s: it hangs: the pool may have lost its devices, see `zpool status`: %w",
				name, strings.Join(args, " "), ctx.Err())
		}
	}
	if err == nil {
		return out.String(), nil
	}
	what := name + " " + strings.Join(args, " ")
	says := strings.TrimSpace(told.String())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: there is no command %s: install the packages zfsutils-linux and util-linux", ErrNoTools, name)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: no answer within %v: the pool may have lost its devices, see `zpool status`: %w",
			what, limit, ctx.Err())
	case strings.Contains(says, "dataset does not exist"):
		return "", fmt.Errorf("%s: %w", what, errNoDataset)
	case strings.Contains(says, "no such pool") && !strings.Contains(says, "no such pool or dataset"):
		return "", fmt.Errorf("%s: %w", what, ErrNoPool)
	case strings.Contains(says, "/dev/zfs"), strings.Contains(says, "internal error: failed to initialize ZFS"),
		strings.Contains(says, "modules cannot be auto-loaded"), strings.Contains(says, "modules are not loaded"):
		return "", fmt.Errorf("%s: %w: %s: load the kernel's module zfs, or start zfs-fuse", what, ErrNoTools, says)
	}
	return "", fmt.Errorf("%s: %w: %s", what, err, says)
}

// properties returns the properties of a dataset: sizes in bytes.
func (t Tools) properties(ctx context.Context, dataset string) (map[string]string, error) {
	out, err := t.zfs(ctx, "get", "-Hp", "-o", "property,value", "all", dataset)
	if err != nil {
		return nil, err
	}
	has := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			has[name] = value
		}
	}
	return has, nil
}
