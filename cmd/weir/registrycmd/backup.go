// SPDX-License-Identifier: Apache-2.0

package registrycmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// snapshooter is a registry that can be copied as a whole.
type snapshooter interface {
	Snapshot(ctx context.Context) (io.ReadCloser, error)
}

func backupCommand(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write a snapshot of the registry to a file", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Writes a snapshot of the registry's etcd, with everything that is in it, to a new file, as\n" +
			"`etcdctl snapshot save` does. It needs a certificate of part administrator.",
		Example: "  weir registry backup registry.db",
		RunE: func(c *cobra.Command, a []string) error {
			cl, err := opener.Open()
			if err != nil {
				return err
			}
			defer cl.Close()
			n, err := backup(c.Context(), cl, a[0])
			if err != nil {
				return fmt.Errorf("back the registry up to %s: %w", a[0], err)
			}
			return sh.Say("%s has a snapshot of the registry, %d bytes\n", a[0], n)
		},
	}
}

// backup writes the snapshot to a file that is not there yet. A file that is there is whole.
func backup(ctx context.Context, cl *access.Client, path string) (n int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, errors.New("the file exists: give another name")
	}
	r, ok := cl.Registry.(snapshooter)
	if !ok {
		return 0, errors.New("this registry has no snapshots")
	}
	in, err := r.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.CreateTemp(filepath.Dir(path), ".weir-registry-") // readable for its owner only
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	if n, err = io.Copy(out, in); err != nil {
		return 0, err
	}
	if err := out.Sync(); err != nil {
		return 0, err
	}
	if err := checkSnapshot(out.Name()); err != nil {
		return 0, err
	}
	return n, os.Rename(out.Name(), path)
}

// checkSnapshot checks the digest at the end of a snapshot: etcd appends the SHA-256 of a database
// whose size is a multiple of 512 bytes.
func checkSnapshot(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 || size%512 != 0 {
		return fmt.Errorf("%s is no whole snapshot of etcd: its size is %d bytes", path, info.Size())
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, size); err != nil {
		return err
	}
	want, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), want) {
		return fmt.Errorf("%s is damaged: its contents do not have the digest at its end", path)
	}
	return nil
}

// restoreOptions are the flags of `weir registry restore`.
type restoreOptions struct {
	dataDir, name, cluster, peerURL, token, etcdutl string
}

func restoreCommand(sh *cli.Shell) *cobra.Command {
	var o restoreOptions
	c := &cobra.Command{
		Use: "restore FILE", Short: "Make an etcd member's data folder from a snapshot", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Makes the data folder of one member of a new etcd cluster from a snapshot, with etcd's own\n" +
			"etcdutl. Run it for every member, with the same file, before any of them starts. Gateways\n" +
			"notice that it is another registry, by its token, which no registry before may have had:\n" +
			"volumes go on as they are until `weir registry reconcile`.",
		Example: "  weir registry restore registry.db --data-dir /var/lib/etcd --name r1 \\\n" +
			"    --initial-cluster r1=https://10.0.0.1:2380,r2=https://10.0.0.2:2380 \\\n" +
			"    --peer-url https://10.0.0.1:2380 --initial-cluster-token weir-2026-11-24",
		RunE: func(c *cobra.Command, a []string) error {
			if err := o.run(c.Context(), sh, a[0]); err != nil {
				return fmt.Errorf("restore the registry from %s: %w", a[0], err)
			}
			return sh.Say("%s has what %s has: start etcd with it, and then run `weir registry status`\n", o.dataDir, a[0])
		},
	}
	f := c.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "`FOLDER` to make, the member's --data-dir")
	f.StringVar(&o.name, "name", "", "member's `NAME`")
	f.StringVar(&o.cluster, "initial-cluster", "", "all members, as `NAME=URL,…`")
	f.StringVar(&o.peerURL, "peer-url", "", "`URL` of this member for the others")
	f.StringVar(&o.token, "initial-cluster-token", "",
		"`TOKEN` of the new cluster, the same for all members and never used before; of one member: made if it is missing")
	f.StringVar(&o.etcdutl, "etcdutl", "etcdutl", "`PROGRAM` of etcd 3.5 or later")
	return c
}

func (o *restoreOptions) run(ctx context.Context, sh *cli.Shell, path string) error {
	for _, f := range [][2]string{{"--data-dir", o.dataDir}, {"--name", o.name}, {"--initial-cluster", o.cluster},
		{"--peer-url", o.peerURL}} {
		if f[1] == "" {
			return cli.Usage("%s is missing: it is needed to make a member's folder", f[0])
		}
	}
	// With the token of the registry before, etcd gives this one the same identity. Then a gateway
	// that slept would change volumes in it (protocol-7).
	if o.token == "" {
		if o.token = "weir-" + strings.ToLower(rand.Text()); strings.Contains(o.cluster, ",") {
			return cli.Usage("--initial-cluster-token is missing: a cluster of several members needs one that all have, and that no "+
				"registry before had: give all of them %s", o.token)
		}
	}
	if _, err := os.Lstat(o.dataDir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--data-dir %s: it is there already: stop the member, and move its folder away", o.dataDir)
	}
	if err := checkSnapshot(path); err != nil {
		return err
	}
	program, err := exec.LookPath(o.etcdutl)
	if err != nil {
		return fmt.Errorf("--etcdutl: %w: install etcd's tools, or run this in etcd's image", err)
	}
	run := exec.CommandContext(ctx, program, "snapshot", "restore", path, "--data-dir", o.dataDir, "--name", o.name,
		"--initial-cluster", o.cluster, "--initial-advertise-peer-urls", o.peerURL, "--initial-cluster-token", o.token)
	run.Stdout, run.Stderr = sh.Err, sh.Err
	return run.Run()
}
