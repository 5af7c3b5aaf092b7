// SPDX-License-Identifier: Apache-2.0

// Package zfs is a cachepool.Pool in a ZFS pool, with a dataset for each volume. So the log's
// fsyncs go to the pool's log devices (SLOG), and what is read often to its cache devices (L2ARC).
//
// The pool exists, or is made from devices that hold nothing. It is never destroyed, never made
// anew over data, and never imported by force. What this package knows of it comes from the
// commands zpool and zfs, as an administrator sees it.
//
//	DATASET                      mounted somewhere: pool.json and pool.lock, as in package dir
//	DATASET/volumes/NAME         the dataset of a volume. In it there is a folder NAME, and one for
//	                             each copy of the volume that was set aside: a folder changes its
//	                             name at once, a dataset only while nobody uses it
//
// # What exists where
//
// It is written for OpenZFS 2.x, and runs with zfs-fuse 0.7 (pool version 23) too:
//
//	                          OpenZFS 2.x                     zfs-fuse 0.7
//	mirror, raidz, cache, log yes                             yes
//	primarycache, secondarycache,
//	logbias, recordsize       yes                             yes
//	property sync             yes: disabled is refused        no: always as the caller asks
//	import without its log    zpool import -m, by a person    not at all
//	zfs rename                while nobody uses the dataset   never: "dataset is busy"
//	rolled back datasets      zpool history -i: clone swap    zpool history -i: zfs rollback
//	mounted datasets          many                            about a hundred, then it hangs
package zfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
)

// Config is how to open a pool.
type Config struct {
	// Path is where the dataset is mounted.
	Path string
	// Dataset is the gateway's, for instance tank/weir. It is made if it is missing.
	Dataset string
	// Devices is what the ZFS pool is made of if there is none of the name; nil: it must be there.
	Devices *Devices
	// Gateway owns the pool; the first to open it is its owner.
	Gateway string
	// Limit of the pool's room in bytes; 0: nine tenths of what the dataset has available, and of
	// what it holds.
	Limit int64
	// Random is the source of incarnations, cryptographic outside tests.
	Random io.Reader
	// Log hears of what is made, and of a new incarnation; nil: nobody does.
	Log *slog.Logger
	// Tools runs the commands; the zero Tools runs those of the PATH.
	Tools Tools
}

// Outcomes; compare with errors.Is. cachepool's are returned too.
var (
	// ErrNoTools: the commands of ZFS are not there, or reach no ZFS.
	ErrNoTools = errors.New("no ZFS")
	// ErrNoPool: no ZFS pool of the name is imported.
	ErrNoPool = errors.New("no such ZFS pool is imported")
	// ErrElsewhere: another machine may use the ZFS pool.
	ErrElsewhere = errors.New("another machine may use the ZFS pool")
	// ErrNoSync: the dataset forgets what it said is durable.
	ErrNoSync = errors.New("its property sync is disabled")
	// ErrInUse: a device holds something, or somebody uses it.
	ErrInUse = errors.New("in use")
)

// Pool is an open pool. Close ends its use; it stays imported.
type Pool struct {
	*dir.Pool
	folders *folders
	cfg     Config
	name    string // of the ZFS pool
	stamp   string // the last line of its history that tells that all of it went back
	looked  atomic.Pointer[cachepool.Report]
	failed  atomic.Pointer[error] // of the last zpool status; nil: it answered
	hung    time.Time             // when commands after that did, of look alone
	tuner   tuner
}

var _ cachepool.Pool = (*Pool)(nil)

// Open opens a pool, and makes it of devices if it is not there. Errors name the dataset:
// cachepool.ErrLocked, ErrForeign, ErrInvalid, and those above.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	fail := func(err error) error { return fmt.Errorf("open pool in dataset %q: %w", cfg.Dataset, err) }
	if err := checkDataset(cfg.Dataset); err != nil {
		return nil, fail(err)
	}
	name, _, _ := strings.Cut(cfg.Dataset, "/")
	if err := cfg.Tools.bring(ctx, name, cfg.Devices, cfg.Log); err != nil {
		return nil, fail(err)
	}
	own := append([]property{{"mountpoint", cfg.Path}}, base...)
	if _, err := cfg.Tools.dataset(ctx, cfg.Dataset, cfg.Path, own); err != nil {
		return nil, fail(err)
	}
	below, path := cfg.Dataset+"/"+volumes, filepath.Join(cfg.Path, volumes)
	if _, err := cfg.Tools.dataset(ctx, below, path, nil); err != nil {
		return nil, fail(err)
	}
	self, err := cachepool.NewID(cfg.Random)
	if err != nil {
		return nil, fail(err)
	}
	out := &Pool{cfg: cfg, name: name, tuner: tuner{wake: make(chan struct{}, 1), wanted: map[string]cachepool.Tuning{},
		todo: map[string]bool{}}}
	newest, anew, err := out.remembered(ctx)
	if err != nil {
		return nil, fail(err)
	}
	out.Pool, err = dir.Open(dir.Config{Path: cfg.Path, Gateway: cfg.Gateway, Limit: cfg.Limit, Random: cfg.Random, Newest: newest,
		Anew: anew, Folders: func() (_ dir.Folders, err error) {
			out.folders, err = newFolders(ctx, cfg.Tools, below, path, self.String(), cfg.Log)
			return out.folders, err
		}, Log: cfg.Log})
	if err == nil {
		if err = out.noteIdentity(ctx); err != nil {
			err = errors.Join(err, out.Close())
		}
	}
	if err != nil {
		return nil, fail(err)
	}
	return out, nil
}

const volumes = "volumes"

// identity is a property of the gateway's dataset: the pool's incarnation and boot, and the last
// line of the history that told that the whole ZFS pool went back. pool.json has the first two, and
// may go back with the dataset. The property goes back with the whole pool.
const identity = "org.weir:identity"

// remembered returns what the property says. anew says why pool.json is not to be believed.
func (p *Pool) remembered(ctx context.Context) (newest dir.Identity, anew, err error) {
	text, err := p.cfg.Tools.zfs(ctx, "get", "-H", "-s", "local", "-o", "value", identity, p.cfg.Dataset)
	if err != nil {
		return newest, nil, err
	}
	all, err := p.cfg.Tools.history(ctx, p.cfg.Dataset)
	if err != nil {
		return newest, nil, err
	}
	p.stamp = stampOf(all.all.line)
	if text = strings.TrimSpace(text); text == "" {
		return newest, fmt.Errorf("dataset %s was not made by this gateway, or went back to before it was: it was cloned, or received",
			p.cfg.Dataset), nil
	}
	incarnation, rest, _ := strings.Cut(text, "/")
	boot, stamp, stamped := strings.Cut(rest, "/")
	if newest.Incarnation, err = cachepool.ParseID(incarnation); err == nil {
		newest.Boot, err = strconv.ParseUint(boot, 10, 64)
	}
	if err != nil {
		return newest, nil, fmt.Errorf("property %s of dataset %s: %q: %w: if pool.json there is the newest, run `zfs inherit %[1]s %[2]s`",
			identity, p.cfg.Dataset, text, cachepool.ErrInvalid)
	}
	if stamped && p.stamp != never && p.stamp != stamp {
		anew = fmt.Errorf("ZFS pool %s went back: its history has %q", p.name, all.all.line)
	}
	return newest, anew, nil
}

// noteIdentity sets the property.
func (p *Pool) noteIdentity(ctx context.Context) error {
	_, err := p.cfg.Tools.zfs(ctx, "set", fmt.Sprintf("%s=%s/%d/%s", identity, p.Incarnation(), p.Boot(), p.stamp), p.cfg.Dataset)
	return err
}

// NewIncarnation implements cachepool.Identity.
func (p *Pool) NewIncarnation() (cachepool.ID, error) {
	id, err := p.Pool.NewIncarnation()
	if err == nil {
		err = p.noteIdentity(context.Background())
	}
	return id, err
}

// Close implements cachepool.Pool.
func (p *Pool) Close() error {
	if p.folders != nil {
		p.folders.stop()
	}
	return p.Pool.Close()
}

// base are the properties of the gateway's dataset, which volumes inherit. Blocks are compressed
// and sealed already.
var base = []property{{"atime", "off"}, {"compression", "off"}, {"exec", "off"}, {"setuid", "off"}, {"devices", "off"}}

// property is a property of a dataset, and its value.
type property struct{ name, value string }

func checkDataset(name string) error {
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if err := cachepool.CheckName("dataset", part); err != nil {
			return err
		}
	}
	if len(parts) < 2 {
		return fmt.Errorf("%w: it is a whole ZFS pool: name a dataset in it, such as %s/weir", cachepool.ErrInvalid, name)
	}
	return nil
}

// dataset makes a dataset that is missing, and sees that it is durable and mounted at path. Of a
// new one it sets properties; those of one that is there are its administrator's.
func (t Tools) dataset(ctx context.Context, name, path string, properties []property) (made bool, err error) {
	has, err := t.properties(ctx, name)
	if errors.Is(err, errNoDataset) {
		made = true
		args := []string{"create"}
		for _, p := range properties {
			args = append(args, "-o", p.name+"="+p.value)
		}
		if _, err := t.zfs(ctx, append(args, name)...); err != nil {
			return false, err
		}
		has, err = t.properties(ctx, name)
	}
	if err != nil {
		return made, err
	}
	if has["sync"] == "disabled" {
		return made, fmt.Errorf("dataset %s: %w: what was acknowledged would be lost with the power: "+
			"run `zfs set sync=standard %s`, or where it is inherited from", name, ErrNoSync, name)
	}
	if has["readonly"] == "on" {
		return made, fmt.Errorf("dataset %s: its property readonly is on: run `zfs set readonly=off %s`", name, name)
	}
	if has["mountpoint"] != path {
		return made, fmt.Errorf("dataset %s: its property mountpoint is %s, and %s is wanted: write that as the path, or run "+
			"`zfs set mountpoint=%s %s`", name, has["mountpoint"], path, path, name)
	}
	if has["mounted"] == "yes" {
		return made, nil
	}
	// What is there would be hidden, such as a pool that was a folder before.
	if there, err := os.ReadDir(path); err == nil && len(there) > 0 {
		return made, fmt.Errorf("dataset %s: its mountpoint %s is not empty: %w: move away what is there, such as %s",
			name, path, ErrInUse, there[0].Name())
	}
	_, err = t.zfs(ctx, "mount", name)
	return made, err
}
