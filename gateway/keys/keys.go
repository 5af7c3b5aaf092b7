// SPDX-License-Identifier: Apache-2.0

// Package keys has the data keys of a gateway's volumes: it unwraps them, wraps them for sites that
// are to have them, and has another follow when a site has the newest that is not to read what is
// written from now on (protocol-17, ADR 30), or when its owner wants it.
//
// If the owner wants to be able to destroy them, data keys are sealed under a secret of the volume
// that only pools of its gateways have (ADR 50). It is sealed for the site's key there.
//
//   - keys-1: a secret is durable on a pool before the registry has a data key that is sealed under
//     it, and before a gateway opens such a key.
//   - keys-2: a gateway gives it only to gateways of sites for which the newest data key is
//     wrapped.
//   - keys-3: a volume whose owner wants it from the beginning is written with such keys only.
//   - keys-4: it is destroyed when the volume was purged, and before anything else of it goes.
package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
)

// ErrAwaited reports that a volume cannot be opened yet. It can when the keyring changes.
var ErrAwaited = errors.New("waits for the volume's key: its home wraps it for this site")

// Keeper is for one gateway. Its fields do not change. Its methods may be called from many
// goroutines.
type Keeper struct {
	Self     federation.Member
	View     *view.View
	Registry interface {
		federation.Keyrings
		federation.ControlStore
	}
	SiteKey keyring.SiteKey
	Now     func() time.Time
	After   func(time.Duration) <-chan time.Time
	Rand    io.Reader
	// Rotates reports whether data keys may be replaced: all gateways know later ones.
	Rotates func() bool
	// Vault returns the folder of the pool that has secrets.
	Vault func() (cachepool.Dir, error)
	// Forward returns a client of another gateway.
	Forward func(gateway string) (forwardpb.ForwardClient, error)
	// Caller returns who calls.
	Caller func(ctx context.Context) (pki.Identity, error)
	Logger *slog.Logger

	looking schedule   // when schedules for data keys are to be looked at
	keeping sync.Mutex // a secret is being written
	opening sync.Mutex
	vault   cachepool.Dir // Vault's; nil: it was not opened yet; guarded by opening
}

// Held are the data keys of a volume that is open here.
type Held struct {
	*segment.Keys

	mu      sync.Mutex
	told    int       // how many there were when they were last brought up
	due     time.Time // when the home begins to use the newest
	wanting bool      // somebody reads them
}

// delay is how long the home waits with a new data key, so that others have it when they need it.
const delay = time.Second

// Open returns all data keys of a volume. A site that has not all of them, or cannot open one,
// opens nothing: it would acknowledge what it cannot read. The error may be ErrAwaited.
func (k *Keeper) Open(ctx context.Context, v federation.Volume) (*Held, error) {
	all, err := k.read(ctx, v)
	if err != nil {
		return nil, err
	}
	keys := segment.NewKeys(all[0])
	keys.Add(all)
	keys.Use(uint32(len(all)) - 1)
	return &Held{Keys: keys, told: len(all)}, nil
}

// read opens the data keys that the registry has. An error may come with some of them.
func (k *Keeper) read(ctx context.Context, v federation.Volume) (map[uint32]segment.DataKey, error) {
	ring, rev, err := k.Registry.GetKeyring(ctx, v.UUID)
	if err != nil {
		return nil, fmt.Errorf("read the keyring of volume %s: %w", v.Name, err)
	}
	if ring, err = k.begin(ctx, v, ring, rev); err != nil {
		return nil, err
	}
	all, err := k.siteKey(ctx).UnwrapAll(ring, k.Self.Site)
	if err == nil && len(all) <= len(ring.Later) {
		err = fmt.Errorf("open the keyring of volume %s: %w", v.Name, ErrAwaited)
	}
	return all, err
}

// siteKey is the site's key, with which also data keys are opened that are sealed under a secret.
func (k *Keeper) siteKey(ctx context.Context) keyring.SiteKey {
	return k.SiteKey.With(func(ring federation.Keyring, digest []byte) (keyring.Secret, error) {
		return k.secret(ctx, ring, digest)
	})
}

// begin has the first data key that a volume is written with sealed under a secret, if its owner
// wants that: nothing was ever sealed with the one that came with the record (keys-3). A volume
// that began before gets another key as its home's Share comes to it.
func (k *Keeper) begin(ctx context.Context, v federation.Volume, ring federation.Keyring, rev federation.Revision) (
	federation.Keyring, error) {
	if !v.Spec.Encryption.Erasable() || len(ring.Later) > 0 {
		return ring, nil
	}
	_, _, err := k.Registry.GetControl(ctx, v.UUID)
	switch {
	case err == nil:
		return ring, nil
	case !errors.Is(err, federation.ErrNotFound):
		return ring, fmt.Errorf("read the control record of volume %s: %w", v.Name, err)
	case len(v.Sites) == 0 || v.Sites[0] != k.Self.Site:
		return ring, fmt.Errorf("the keyring of volume %s: %w: where it begins, one is made that can be destroyed", v.Name, ErrAwaited)
	case !k.Rotates():
		return ring, fmt.Errorf("volume %s is to have a key that can be destroyed, and the federation's records are not signed yet, so "+
			"that some gateway may not know such keys: `weir federation require-signatures`, or write encryption.erase: Never", v.Name)
	}
	sites := map[string][]byte{}
	for _, s := range k.View.Sites() {
		if len(ring.Wrapped[s.Name]) > 0 {
			sites[s.Name] = s.WrapKey
		}
	}
	under, err := k.under(ctx, v, ring)
	if err != nil {
		return ring, err
	}
	is := keyring.Next{At: k.Now(), Rotation: v.Spec.Encryption.Rotation, Under: under}
	next, err := k.SiteKey.Rotate(ring, k.Self.Site, sites, is, k.Rand)
	if err == nil {
		_, err = k.Registry.PutKeyring(ctx, rev, next)
	}
	if err != nil { // the next attempt reads what there is
		return ring, fmt.Errorf("make a data key of volume %s that can be destroyed: %w", v.Name, err)
	}
	return next, nil
}

// Awaited reports whether the volume's keyring, as last heard, lacks a key for this site.
func (k *Keeper) Awaited(volume string) bool {
	sites, known := k.View.Keyring(volume)
	return known && !sites[k.Self.Site]
}

// home reports whether this gateway is a volume's home, as was last heard.
func (k *Keeper) home(volume string) bool {
	home, _ := k.View.Home(volume)
	return home == k.Self.Gateway
}

// take takes in the data keys that the registry has now.
func (k *Keeper) take(ctx context.Context, v federation.Volume, held *Held) error {
	all, err := k.read(ctx, v)
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.Add(all); err != nil { // what can be opened is of use all the same
		return err
	}
	if len(all) > held.told {
		held.told, held.due = len(all), k.Now().Add(delay)
	}
	return nil
}

// Renew takes in data keys that came, and begins to seal with the newest: then it calls newSalt. It
// reports whether it must be tried again.
func (k *Keeper) Renew(ctx context.Context, v federation.Volume, held *Held, newSalt func()) (again bool) {
	held.mu.Lock()
	told := held.told
	held.mu.Unlock()
	if k.View.Keys(v.UUID) > told && !k.Awaited(v.UUID) {
		if err := k.take(ctx, v, held); err != nil {
			k.Logger.Warn("a new data key cannot be read yet; trying again", "volume", v.Name, "error", err)
			return true
		}
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	newest := uint32(held.told) - 1
	if used, _ := held.Newest(); used >= newest {
		return false
	}
	if k.home(v.UUID) && k.Now().Before(held.due) {
		return true
	}
	if held.Use(newest) {
		newSalt() // the next record begins a segment
		k.Logger.Info("another data key is used from now on", "volume", v.Name, "number", newest)
	}
	return false
}

// wantTime bounds how long a key that is wanted at once is waited for.
const wantTime = 10 * time.Second

// Want takes in data keys at once, which what came from the home was sealed with. It does not wait.
// use keeps the volume open until done is called, which closing it waits for.
func (k *Keeper) Want(v federation.Volume, held *Held, use func() (ctx context.Context, done func(), err error)) {
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.wanting {
		return
	}
	ctx, done, err := use()
	if err != nil {
		return // it is being closed
	}
	held.wanting = true
	go func() {
		defer done()
		ctx, cancel := context.WithTimeout(ctx, wantTime)
		defer cancel()
		err := k.take(ctx, v, held)
		held.mu.Lock()
		held.wanting = false
		held.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			k.Logger.Warn("a data key that is needed cannot be read yet", "volume", v.Name, "error", err)
		}
	}()
}

// Share wraps the data keys of a volume whose home is here for sites that do not have them yet, and
// has another follow if a site has the newest that is not to. It reports whether it must be tried
// again. A site without a public key gets the keys when its public key is registered. leading
// reports whether the copy here leads.
func (k *Keeper) Share(ctx context.Context, v federation.Volume, leading func() bool) (again bool) {
	k.lookAgain(v)
	if !k.home(v.UUID) {
		return false
	}
	if missing := k.View.Keyless(v); len(missing) > 0 {
		again = k.change(ctx, v, leading, "data keys are wrapped for sites that are new", len(missing),
			func(ring federation.Keyring) (federation.Keyring, error) {
				return k.siteKey(ctx).Extend(ring, k.Self.Site, missing)
			})
	}
	surplus, keep := k.View.Surplus(v)
	var why string
	if surplus {
		why = "a site is not to read the volume any more"
	} else if e := k.View.Volume(v.UUID); e != nil {
		is, _ := e.NewestKey()
		why = v.Spec.Encryption.Due(is, k.Now())
	}
	if why == "" || keep == nil || !k.Rotates() {
		return again
	}
	if v.IsBlind(k.Self.Site) {
		return true // the next home does it, which keeps the key
	}
	if !bytes.Equal(keep[k.Self.Site], k.SiteKey.Public()) {
		k.Logger.Warn("the data key is not replaced: the site's key in the registry is not this gateway's", "volume", v.Name)
		return true
	}
	return k.change(ctx, v, leading, "another data key follows: "+why, len(keep),
		func(ring federation.Keyring) (federation.Keyring, error) {
			if len(ring.Keys()) != k.View.Keys(v.UUID) {
				return ring, federation.ErrConflict // it is not what was decided by
			}
			under, err := k.under(ctx, v, ring)
			if err != nil {
				return ring, err
			}
			is := keyring.Next{At: k.Now(), Rotation: v.Spec.Encryption.Rotation, Under: under}
			return k.siteKey(ctx).Rotate(ring, k.Self.Site, keep, is, k.Rand)
		}) || again
}

// change replaces a volume's keyring.
func (k *Keeper) change(ctx context.Context, v federation.Volume, leading func() bool, done string, sites int,
	next func(federation.Keyring) (federation.Keyring, error)) (again bool) {
	if !leading() {
		return true
	}
	err := func() error {
		ring, rev, err := k.Registry.GetKeyring(ctx, v.UUID)
		if err != nil {
			return fmt.Errorf("read the keyring: %w", err)
		}
		ring, err = next(ring)
		if err != nil {
			return err
		}
		_, err = k.Registry.PutKeyring(ctx, rev, ring)
		return err
	}()
	switch {
	case err == nil:
		k.Logger.Info(done, "volume", v.Name, "sites", sites)
		return false // the registry tells of it, which has all looked at again
	case ctx.Err() == nil && !errors.Is(err, federation.ErrConflict):
		k.Logger.Warn("the volume's keyring is not changed yet; trying again", "volume", v.Name, "error", err)
	}
	return true
}
