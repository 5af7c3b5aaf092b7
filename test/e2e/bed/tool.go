// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-storage/weir/test/e2e/stage"
)

// Tool builds the program that runs in guests, and returns its path, which is the same in them.
func (b *Bed) Tool(ctx context.Context) (string, error) {
	root, err := stage.ModuleRoot(".")
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(b.weir), "guesttool")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./test/e2e/guesttool")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, b.cfg.Progress, b.cfg.Progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build guesttool: %w", err)
	}
	return path, nil
}

// HowTo tells a person how to use the weir program in a bed that is left running.
func (b *Bed) HowTo(site string) string {
	files := b.tls["admin-"+site]
	return fmt.Sprintf(`At site %s, as its operator:
    export WEIR_FEDERATION=%s WEIR_REGISTRY=%s \
        WEIR_CA=%s WEIR_CERT=%s WEIR_KEY=%s
    ip netns exec %s-%s %s status
    ip netns exec %s-%s %s failover shared --to b`, site, Federation, strings.Join(b.Etcd.Endpoints(), ","),
		files.CA, files.Cert, files.Key,
		b.Stage.Prefix(), site, b.weir, b.Stage.Prefix(), site, b.weir)
}
