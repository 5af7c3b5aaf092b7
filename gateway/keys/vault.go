// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// A secret is in one file of the pool, named by its volume's UUID, sealed for the site's key.
const secretTemp = "secret.new"

// folder returns the folder of secrets, which is opened once.
func (k *Keeper) folder() (cachepool.Dir, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.vault == nil {
		dir, err := k.Vault()
		if err != nil {
			return nil, fmt.Errorf("open the folder of secrets on the pool: %w", err)
		}
		k.vault = dir
	}
	return k.vault, nil
}

// sealedSecret returns what this gateway's pool has of a volume. fs.ErrNotExist: nothing.
func (k *Keeper) sealedSecret(volume string) ([]byte, error) {
	dir, err := k.folder()
	if err != nil {
		return nil, err
	}
	return cachepool.ReadAll(dir, volume)
}

// keep makes a sealed secret durable on the pool (keys-1).
func (k *Keeper) keep(volume string, sealed []byte) error {
	dir, err := k.folder()
	if err == nil {
		k.keeping.Lock() // all volumes share the other name
		err = cachepool.Replace(dir, secretTemp, volume, sealed)
		k.keeping.Unlock()
	}
	if err != nil {
		return fmt.Errorf("keep the secret of volume %s on the pool: %w", volume, err)
	}
	return nil
}

// HasSecret reports whether the pool has the secret of a volume, or may have it.
func (k *Keeper) HasSecret(volume string) bool {
	_, err := k.sealedSecret(volume)
	return !errors.Is(err, fs.ErrNotExist)
}

// Destroy removes the secret of a volume from the pool, durably. Without it nobody reads here what
// was sealed under it. It is no error that there is none.
func (k *Keeper) Destroy(volume string) error {
	dir, err := k.folder()
	if err == nil {
		if err = dir.Remove(volume); errors.Is(err, fs.ErrNotExist) {
			err = nil // a crash may have come before the sync
		}
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("destroy the secret of volume %s on the pool: %w", volume, err)
	}
	return nil
}

// own returns the secret that the pool has. fs.ErrNotExist: none that this site's key opens.
func (k *Keeper) own(volume string) (keyring.Secret, error) {
	sealed, err := k.sealedSecret(volume)
	if err != nil {
		return keyring.Secret{}, err
	}
	s, err := k.SiteKey.OpenSecret(sealed, volume, k.Self.Site)
	if err != nil {
		return s, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return s, nil
}

// askTime bounds the question for a secret to one gateway.
const askTime = 5 * time.Second

// secret returns the secret with a digest: the pool's, or else another gateway's, which the pool
// has then, too.
func (k *Keeper) secret(ctx context.Context, ring federation.Keyring, digest []byte) (keyring.Secret, error) {
	s, err := k.own(ring.Volume)
	if err == nil && is(s, ring.Volume, digest) {
		return s, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err // the pool may have it
	}
	home, _ := k.View.Home(ring.Volume)
	var ask []string
	for _, m := range k.View.Members() {
		switch {
		case m.Gateway == k.Self.Gateway || len(ring.Newest()[m.Site]) == 0:
		case m.Gateway == home:
			ask = append([]string{home}, ask...)
		default:
			ask = append(ask, m.Gateway)
		}
	}
	var refused error
	for _, gateway := range ask {
		sealed, err := k.ask(ctx, gateway, ring.Volume)
		if err == nil {
			s, err = k.SiteKey.OpenSecret(sealed, ring.Volume, k.Self.Site)
		}
		if err == nil && !is(s, ring.Volume, digest) {
			err = errors.New("it has another one")
		}
		if err == nil {
			return s, k.keep(ring.Volume, sealed)
		}
		refused = errors.Join(refused, fmt.Errorf("gateway %s: %w", gateway, err))
	}
	return s, fmt.Errorf("the secret that the data keys of volume %s are sealed under is not on this pool, and no other gateway gives it: "+
		"bring one back that had it, with its pool (%w)", ring.Volume, errors.Join(refused, ctx.Err()))
}

func is(s keyring.Secret, volume string, digest []byte) bool {
	return subtle.ConstantTimeCompare(s.Digest(volume), digest) == 1
}

func (k *Keeper) ask(ctx context.Context, gateway, volume string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := k.Forward(gateway)
	if err != nil {
		return nil, err
	}
	r, err := c.Key(ctx, &forwardpb.KeyRequest{Volume: volume})
	return r.GetSealed(), err
}

// under returns the secret that the next data key of a volume is sealed under, and has it durable
// here before anybody can need it (keys-1); nil: the owner does not want any.
func (k *Keeper) under(ctx context.Context, v federation.Volume, ring federation.Keyring) (*keyring.Secret, error) {
	if !v.Spec.Encryption.Erasable() {
		return nil, nil
	}
	for i := len(ring.Later) - 1; i >= 0; i-- { // a volume has one
		if digest := ring.Later[i].Under; len(digest) > 0 {
			s, err := k.secret(ctx, ring, digest)
			return &s, err
		}
	}
	s, err := k.own(v.UUID) // of an earlier attempt, which did not come to the registry
	if !errors.Is(err, fs.ErrNotExist) {
		return &s, err
	}
	if _, err := io.ReadFull(k.Rand, s[:]); err != nil {
		return nil, fmt.Errorf("draw a secret: %w", err)
	}
	sealed, err := keyring.SealSecret(s, v.UUID, k.Self.Site, k.SiteKey.Public())
	if err != nil {
		return nil, err
	}
	return &s, k.keep(v.UUID, sealed)
}

// Key answers another gateway that asks for the secret of a volume: sealed for the key that its
// site registered, and only if the volume's newest data key is wrapped for that site (keys-2).
// Errors are a gRPC status.
func (k *Keeper) Key(ctx context.Context, q *forwardpb.KeyRequest) (*forwardpb.KeyReply, error) {
	id, err := k.Caller(ctx)
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	v, known := k.View.Record(q.GetVolume())
	if !known || v.Deleted {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	_, site, registered := k.View.Gateway(id.Gateway)
	if !registered || site.Name != id.Site || !k.View.HasNewest(v.UUID, site.Name) {
		return nil, status.Errorf(codes.PermissionDenied, "volume %s: its newest data key is not wrapped for site %q", v.Name, id.Site)
	}
	s, err := k.own(v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "gateway %s does not have the secret of volume %s: %v", k.Self.Gateway, v.Name,
			err)
	}
	sealed, err := keyring.SealSecret(s, v.UUID, site.Name, site.WrapKey)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.KeyReply{Sealed: sealed}, nil
}
