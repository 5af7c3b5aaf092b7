// SPDX-License-Identifier: Apache-2.0

package fsckcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	pooldir "github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/cmd/weir/gatewaycmd"
	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/cmd/weir/rebuildcmd"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/rebuild"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// patient is a check without gateways.
type patient struct {
	sh   *cli.Shell
	o    options
	show *progress

	file   config.Config
	volume volume.ID
	keys   *segment.Keys
	store  store.Store // nil: none was given
	logger *slog.Logger
}

// without checks a copy without any gateway.
func without(ctx context.Context, sh *cli.Shell, opener *access.Opener, name string, o options, show *progress) (r Result, err error) {
	path := cmp.Or(opener.Config, sh.Getenv("WEIR_CONFIG"))
	if path == "" {
		return r, cli.Usage("it is not known which site this is: give --config (WEIR_CONFIG), a gateway's configuration file")
	}
	p := patient{sh: sh, o: o, show: show, logger: slog.New(slog.NewTextHandler(sh.Err, &slog.HandlerOptions{Level: slog.LevelError}))}
	if p.file, err = config.Read(path); err != nil {
		return r, err
	}
	if p.volume, p.keys, err = rebuildcmd.KeysOf(ctx, sh, opener, name, o.keyring, p.file); err != nil {
		return r, err
	}
	if o.store || o.storeDir != "" {
		if p.store, err = rebuildcmd.OpenStore(ctx, p.file.Store, o.storeDir, p.logger); err != nil {
			return r, err
		}
	}
	if o.pool != "" {
		r.Place = "pool " + o.pool
		r.Report, err = p.pool(ctx)
	} else {
		r.Place = cmp.Or(o.storeDir, "the store of site "+p.file.Site)
		r.Report, err = p.fromStore(ctx)
	}
	if r.Report != nil {
		r.Report.Volume, r.Report.Site = name, p.file.Site
	}
	return r, err
}

// pool checks the copy on a pool.
func (p *patient) pool(ctx context.Context) (r *checking.Report, err error) {
	in, err := p.openPool(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	id := p.volume.String()
	there, err := in.ListVolumes()
	if err == nil && !slices.Contains(there, id) {
		err = fmt.Errorf("the pool has %d volumes, and not %s: give the pool of a gateway that has a copy", len(there), id)
	}
	if err != nil {
		return nil, err
	}
	dir, err := in.Volume(id)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(dir.Path(), rebuild.MetaFolder)
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("the copy has no metadata: start its gateway, which makes them from the log, or is without the key: %w", err)
	}
	key, ok := p.keys.Get(0)
	if !ok {
		return nil, errors.New("the volume's first data key is not given: its metadata are encrypted with it")
	}
	random := machine.Random(p.sh.Random, p.sh.Now, p.sh.Boottime)
	c, err := rebuild.Open(ctx, engine.Config{ID: p.volume, FS: vfs.Default, Dir: folder, DataKey: key, Now: p.sh.Now,
		Clock: clockwork.NewRealClock(), Rand: random, Logger: p.logger},
		log.Config{Dir: dir, Room: in.Room(), Volume: segment.VolumeID(p.volume), DataKey: key, Keys: p.keys, Rand: random, Now: p.sh.Now,
			Logger: p.logger, Lost: in.Rewound(id)}, p.store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	doubt := c.Log.Recovered().Doubt
	if doubt != nil && p.o.repair {
		return nil, fmt.Errorf("the copy's log may have lost something, so nothing is repaired here: let its gateway start, which "+
			"settles it with the volume's other copies: %w", doubt)
	}
	r, err = checking.Run(ctx, p.config(c))
	if doubt != nil {
		r.Damage = append(r.Damage, checking.Damage{Where: checking.Pool, Kind: checking.KindSegment,
			Detail: fmt.Sprintf("the log may have lost something, and was checked up to %s: %v", c.Log.End(), doubt),
			Advice: "let its gateway start, which settles it with the volume's other copies"})
	}
	return r, err
}

func (p *patient) config(c *rebuild.Copy) checking.Config {
	return checking.Config{Volume: p.volume.String(), Log: c.Log, Engine: c.Engine, Keys: p.keys, Store: p.store, Data: p.o.data,
		Repair: p.o.repair, Progress: p.show.tell}
}

// openPool opens a pool that is there.
func (p *patient) openPool(ctx context.Context) (cachepool.Pool, error) {
	if _, err := os.Stat(filepath.Join(p.o.pool, "pool.json")); err != nil { // opening would make one
		return nil, fmt.Errorf("--pool: %w: give the folder of a gateway's pool", err)
	}
	for _, c := range append([]config.Pool{p.file.Pool}, p.file.Pools...) {
		if c.ZFS != nil && filepath.Clean(c.Path) == filepath.Clean(p.o.pool) {
			return gatewaycmd.OpenPool(ctx, c, p.file.Gateway, p.sh.Random, p.logger)
		}
	}
	in, err := pooldir.Open(pooldir.Config{Path: p.o.pool, Gateway: p.file.Gateway, Random: p.sh.Random, Log: p.logger})
	if err != nil {
		return nil, err
	}
	return in, nil
}

// fromStore checks what can be made from a store alone, in a folder that goes again.
func (p *patient) fromStore(ctx context.Context) (r *checking.Report, err error) {
	work, err := os.MkdirTemp(p.o.folder, "weir-fsck-")
	if err != nil {
		return nil, fmt.Errorf("--work: make a folder for the metadata: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	random := machine.Random(p.sh.Random, p.sh.Now, p.sh.Boottime)
	in, err := pooldir.Open(pooldir.Config{Path: work, Gateway: "fsck", Random: random})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	dir, err := in.Volume(p.volume.String())
	if err != nil {
		return nil, err
	}
	p.show.tell(checking.Progress{Step: "making the metadata"})
	made, err := rebuild.Make(ctx, rebuild.Config{Volume: p.volume, Store: p.store, Keys: p.keys, Dir: dir, Room: in.Room(),
		FS: vfs.Default, Now: p.sh.Now, Clock: clockwork.NewRealClock(), Rand: random, Logger: p.logger, AcceptLoss: true})
	if err != nil {
		return nil, err
	}
	c, err := made.Open(p.store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r, err = checking.Run(ctx, p.config(c))
	for _, what := range made.Passed {
		r.Damage = append(r.Damage, checking.Damage{Where: checking.Store, Kind: checking.KindCheckpoint, Detail: what,
			Advice: "nothing is lost: an earlier one or the log makes the same state, and gateways make another"})
	}
	for _, l := range made.Lost {
		if l.Cut {
			r.Damage = append(r.Damage, checking.Damage{Where: checking.Nowhere, Kind: checking.KindSegment, Detail: l.String(),
				Advice: "these changes are not in this store: bring the objects from another store, or check another copy"})
		}
	}
	return r, err
}
