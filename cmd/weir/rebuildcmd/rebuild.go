// SPDX-License-Identifier: Apache-2.0

// Package rebuildcmd has `weir volume rebuild`: a volume from one store and its keys alone.
package rebuildcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/spf13/cobra"

	"github.com/weir-storage/weir/cachepool"
	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/cmd/weir/gatewaycmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/gateway/rebuild"
	"github.com/weir-storage/weir/store"
	storedir "github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/volume"
)

// options are the flags.
type options struct {
	to, storeDir, keyring string
	pool, acceptLoss      bool
}

// Command is `weir volume rebuild`.
func Command(sh *cli.Shell, opener *access.Opener) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "rebuild NAME", Short: "Make a volume again from one store and its keys", Args: cli.Args(cobra.ExactArgs(1)),
		Long: "Makes a volume again from the store of one site and the volume's keys. It asks no gateway. With --to\n" +
			"it writes the volume's files into an empty directory. With --pool it makes a copy on the pool of the\n" +
			"gateway whose file --config is, which must be stopped, and must have no copy of the volume.\n\n" +
			"The store, the site and the site's key are those of --config. The keyring comes from the registry,\n" +
			"or with --keyring from a file; then NAME is the volume's UUID, and no registry is needed.\n\n" +
			"What is lost is named, with the paths that it concerns, and then nothing is made, unless\n" +
			"--accept-loss is given. What was written last and was in no segment of the store is not there, and\n" +
			"nobody can tell from a store how much that is.",
		Example: "  weir volume rebuild data --config /etc/weir/gateway.yaml --to /mnt/rescue\n" +
			"  weir volume rebuild 3f9c02d7-… --config gateway.yaml --keyring keyring.json --to /mnt/rescue\n" +
			"  weir volume rebuild data --config /etc/weir/gateway.yaml --pool",
		RunE: func(c *cobra.Command, a []string) error {
			if (o.to == "") == !o.pool {
				return cli.Usage("volume rebuild: say where to: give --to DIRECTORY, or --pool for the pool of the gateway")
			}
			if o.pool && o.storeDir != "" {
				return cli.Usage("volume rebuild: --pool with --store-dir: a copy on a pool has its past in the store of its own site, " +
					"so rebuild from that of --config, after bringing the objects there")
			}
			return run(c.Context(), sh, opener, a[0], o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.to, "to", "", "write the files into this empty `DIRECTORY`")
	f.BoolVar(&o.pool, "pool", false, "make a copy on the main pool of the gateway of --config")
	f.StringVar(&o.storeDir, "store-dir", "", "`DIRECTORY` that is the store, in place of that of --config")
	f.StringVar(&o.keyring, "keyring", "", "`FILE` with the volume's keyring as the registry has it, in JSON")
	f.BoolVar(&o.acceptLoss, "accept-loss", false, "go on without what is lost")
	return c
}

func run(ctx context.Context, sh *cli.Shell, opener *access.Opener, name string, o options) error {
	path := opener.Config
	if path == "" {
		path = sh.Getenv("WEIR_CONFIG")
	}
	if path == "" {
		return cli.Usage("it is not known which site this is: give --config (WEIR_CONFIG), a gateway's configuration file")
	}
	file, err := config.Read(path)
	if err != nil {
		return err
	}
	id, keys, err := KeysOf(ctx, sh, opener, name, o.keyring, file)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(sh.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	from, err := OpenStore(ctx, file.Store, o.storeDir, logger)
	if err != nil {
		return err
	}
	random := machine.Random(sh.Random, sh.Now, sh.Boottime)
	cfg := rebuild.Config{Volume: id, Store: from, Keys: keys, FS: vfs.Default, Now: sh.Now, Clock: clockwork.NewRealClock(),
		Rand: random, Logger: logger, AcceptLoss: o.acceptLoss}
	if o.pool {
		p, err := gatewaycmd.OpenPool(ctx, file.Pool, file.Gateway, random, logger)
		if err != nil {
			return fmt.Errorf("pool.%w", err)
		}
		_, err = makeIn(ctx, sh, p, cfg)
		return errors.Join(err, p.Close())
	}
	return extract(ctx, sh, cfg, o.to)
}

// makeIn makes the copy on a pool, and tells of it.
func makeIn(ctx context.Context, sh *cli.Shell, p cachepool.Pool, cfg rebuild.Config) (r rebuild.Report, err error) {
	if cfg.Dir, err = p.Volume(cfg.Volume.String()); err != nil {
		return r, err
	}
	cfg.Room = p.Room()
	r, err = rebuild.Make(ctx, cfg)
	var loss *rebuild.LossError
	if errors.As(err, &loss) {
		return r, fmt.Errorf("%w\nrestore these objects from another store or a backup, or give --accept-loss to go on without them", err)
	}
	if err != nil {
		return r, err
	}
	for _, what := range r.Passed {
		sh.Tell("passed over, nothing is lost by it: %s\n", what)
	}
	for _, name := range r.Left {
		sh.Tell("of a branch that was left out: %s\n", name)
	}
	for _, l := range r.Lost {
		sh.Tell("lost: %s\n", l)
	}
	return r, sh.Say("volume %s: %d segments up to %d/%d, epoch %d; from the checkpoint at %d/%d, and %d segments after it, in %s\n",
		cfg.Volume, r.Segments, r.End.Seq, r.End.Off, r.Epoch, r.Checkpoint.Seq, r.Checkpoint.Off, r.Read, cli.Span(r.Took.Seconds()))
}

// extract writes the files into a directory. What it needs meanwhile is in a folder beside it.
func extract(ctx context.Context, sh *cli.Shell, cfg rebuild.Config, to string) (err error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("--to: %w: give a directory that this user can write", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), ".weir-rebuild-")
	if err != nil {
		return fmt.Errorf("make a folder for the metadata beside --to: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	p, err := pooldir.Open(pooldir.Config{Path: work, Gateway: "rebuild", Random: cfg.Rand})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	r, err := makeIn(ctx, sh, p, cfg)
	if err != nil {
		return err
	}
	c, err := r.Open(cfg.Store)
	if err != nil {
		return err
	}
	w, err := rebuild.Extract(ctx, c, to, cfg.AcceptLoss)
	if err := errors.Join(err, c.Close()); err != nil {
		return err
	}
	for _, path := range w.Lost {
		sh.Tell("lost, and not written: %s\n", path)
	}
	for _, what := range w.Refused {
		sh.Tell("this machine did not set: %s\n", what)
	}
	if w.MoreRefused > 0 {
		sh.Tell("this machine did not set: %d more\n", w.MoreRefused)
	}
	return sh.Say("%s: %d files of %s, %d directories, %d others\n", to, w.Files, cli.Bytes(int64(w.Bytes)), w.Directories, w.Others)
}

// OpenStore opens the store of a site, or a directory in its place. The caller does not close it.
func OpenStore(ctx context.Context, c config.Store, dir string, logger *slog.Logger) (store.Store, error) {
	if dir != "" {
		if _, err := os.Stat(dir); err != nil { // opening would make it
			return nil, fmt.Errorf("--store-dir: %w", err)
		}
		s, err := storedir.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("--store-dir: %w", err)
		}
		return s, nil
	}
	s, _, err := gatewaycmd.OpenStore(ctx, c, logger)
	if err == nil && s == nil {
		err = cli.Usage("the site of --config has no store: give --store-dir, or a file with a store")
	}
	return s, err
}

// KeysOf finds a volume's identity and its data keys, as far as the site of a configuration has
// them. file has the keyring; empty: the registry has it. Keys that are sealed under a secret which
// is not here are left out, which is told: what was sealed with the others can be read.
func KeysOf(ctx context.Context, sh *cli.Shell, opener *access.Opener, name, file string, c config.Config) (id volume.ID,
	_ *segment.Keys, err error) {
	key, err := gatewaycmd.ReadSiteKey(c.SiteKey)
	if err != nil {
		return id, nil, err
	}
	var ring federation.Keyring
	if file != "" {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &ring)
		}
		if err == nil && ring.Volume != name {
			err = fmt.Errorf("it is of volume %q, not of %q: with --keyring, name the volume by its UUID", ring.Volume, name)
		}
		if err != nil {
			return id, nil, fmt.Errorf("--keyring %s: %w", file, err)
		}
	} else {
		cl, err := opener.Open()
		if err != nil {
			return id, nil, err
		}
		defer cl.Close()
		v, _, err := cl.Find(ctx, name)
		if err != nil {
			return id, nil, err
		}
		if ring, _, err = cl.Registry.GetKeyring(ctx, v.UUID); err != nil {
			return id, nil, fmt.Errorf("read the keyring of volume %s: %w", name, err)
		}
	}
	u, err := uuid.Parse(ring.Volume)
	if err != nil {
		return id, nil, fmt.Errorf("volume %s: UUID %q: %w", name, ring.Volume, err)
	}
	all, err := key.UnwrapAll(ring, c.Site)
	if errors.Is(err, keyring.ErrErasable) && len(all) > 0 {
		n := len(ring.Keys())
		sh.Tell("warning: %d of %d data keys cannot be opened, and what is sealed with them cannot be read: %v\n", n-len(all), n, err)
		err = nil
	}
	if err != nil {
		return id, nil, err
	}
	keys := segment.NewKeys(all[0])
	keys.Add(all)
	return volume.ID(u), keys, nil
}
