// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Tools runs zpool and zfs. Its methods may be called from many goroutines.
type Tools struct {
	// Prefix comes before a command's name and arguments, such as `chroot /host`. It may be empty.
	Prefix []string
}

// toolTime bounds one command. On a pool that lost its devices a command may hang for ever.
const toolTime = 30 * time.Second

var errNoDataset = errors.New("dataset does not exist")

func (t Tools) zfs(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "zfs", args)
}

func (t Tools) zpool(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "zpool", args)
}

func (t Tools) run(ctx context.Context, name string, args []string) (string, error) {
	return t.runFor(ctx, toolTime, name, args)
}

// runFor runs a command for at most that long. One that hangs in the kernel is left behind.
func (t Tools) runFor(ctx context.Context, limit time.Duration, name string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	line := append(append(append([]string{}, t.Prefix...), name), args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
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
		return "", fmt.Errorf("%w: there is no command %s: install the packages zfsutils-linux and util-linux", ErrNoTools, line[0])
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: no answer within %v: the pool may have lost its devices, see `zpool status`: %w",
			what, limit, ctx.Err())
	case strings.Contains(says, "dataset does not exist"):
		return "", fmt.Errorf("%s: %w", what, errNoDataset)
	case strings.Contains(says, "no such pool"), strings.Contains(says, "no such pool or dataset"):
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
