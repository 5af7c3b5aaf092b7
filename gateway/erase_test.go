// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/keyring"
)

// eraseManifest is that of a volume that is to be erased by its purge.
func eraseManifest(name string, copies int) string {
	return manifest(name, copies) + "  encryption: {erase: OnPurge, acceptOneSite: true}\n"
}

// secretAt returns the file of a volume's secret on the pool of a site.
func (c *cluster) secretAt(site, id string) ([]byte, error) {
	return os.ReadFile(filepath.Join(c.dir, site, "volumes", "keys", id))
}

// TestErasedVolume: all that is ever written of the volume is sealed with keys that the registry
// and the sites' keys do not open without the secret that pools have. Another site gets it from the
// home, and has it when that has gone; a new pool of a site gets it again. The purge destroys it
// everywhere, and what stores and a backup of the registry have opens nothing any more.
func TestErasedVolume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createAt("v", eraseManifest("v", 2), []string{"a", "b"})
	c.change(id, func(v *federation.Volume) { v.Spec.Encryption.AcceptOneSite = false })
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	backup := c.ring(id)
	if len(backup.Keys()) != 2 || len(backup.Later[0].Under) == 0 {
		t.Fatalf("there are %d keys", len(backup.Keys()))
	}

	// Whoever has the registry and the keys of all sites reads nothing: no segment, no key.
	var first keyring.DataKey
	for _, s := range []string{"a", "b"} {
		k := c.nodes[s].key
		if _, err := k.UnwrapAll(backup, s); !errors.Is(err, keyring.ErrErasable) {
			t.Errorf("the keys of %s: %v", s, err)
		}
		var err error
		if first, err = k.Unwrap(backup, s); err != nil {
			t.Fatal(err)
		}
	}
	if opened, closed := c.sealedFor("a", id, map[uint32]segment.DataKey{0: first}); len(opened) > 0 || closed[1] == 0 {
		t.Errorf("it opens %v, and does not open %v", opened, closed)
	}
	r := fmt.Sprint(backup)
	for _, s := range []string{"a", "b"} {
		sealed, err := c.secretAt(s, id)
		if err != nil || strings.Contains(r, string(sealed)) {
			t.Fatalf("the secret at %s: %v", s, err)
		}
	}

	// The other site goes on without the first, which comes back with an empty pool.
	c.stop("a")
	next := c.router("b", id)
	has(t, next, names)
	if err := os.RemoveAll(filepath.Join(c.dir, "a")); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	names = append(names, c.load(next, "g")()...)
	has(t, c.router("a", id), names)
	if _, err := c.secretAt("a", id); err != nil {
		t.Errorf("a has the secret again: %v", err)
	}
	// Another key is sealed under the same secret.
	c.change(id, func(v *federation.Volume) { v.Spec.Encryption.Rotation = 1 })
	c.until("another data key follows", func() error {
		if r := c.ring(id); len(r.Later) != 2 || string(r.Later[1].Under) != string(r.Later[0].Under) {
			return fmt.Errorf("there are %d", len(r.Keys()))
		}
		return nil
	})
	has(t, c.router("a", id), names)

	// A copy of what is there now, as a thief has it who was quick; and then the purge.
	backup = c.ring(id)
	before := map[string][]byte{}
	for _, s := range []string{"a", "b"} {
		var err error
		if before[s], err = c.secretAt(s, id); err != nil {
			t.Fatal(err)
		}
	}
	c.stop("a") // it hears of the purge later
	c.purgeNow(id)
	c.until("the secret is gone from b", func() error {
		_, err := c.secretAt("b", id)
		return gone(err)
	})
	if _, err := c.secretAt("a", id); err != nil {
		t.Errorf("a sleeps, and the secret there: %v", err)
	}
	c.start("a")
	c.until("the secret is gone from a", func() error {
		_, err := c.secretAt("a", id)
		return gone(err)
	})
	for _, s := range []string{"a", "b"} {
		if _, err := c.nodes[s].key.UnwrapAll(backup, s); !errors.Is(err, keyring.ErrErasable) {
			t.Errorf("with the backup %s opens it: %v", s, err)
		}
		// What shows that nothing else protects it: with the file it would be read.
		s, k := s, c.nodes[s].key
		all, err := k.With(func(ring federation.Keyring, _ []byte) (keyring.Secret, error) {
			return k.OpenSecret(before[s], id, s)
		}).UnwrapAll(backup, s)
		if err != nil || len(all) != 3 {
			t.Errorf("with the file %s opens %d: %v", s, len(all), err)
		}
	}
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("it is there: %w", err)
}

// purgeNow deletes a volume, whose time in the trash is over at once.
func (c *cluster) purgeNow(id string) {
	c.t.Helper()
	c.with(func(r federation.Registry) error {
		v, rev, err := r.GetVolume(context.Background(), id)
		if err != nil {
			return err
		}
		v.Deleted, v.DeletedAt, v.PurgeAfter = true, v.CreatedAt, v.CreatedAt.Add(1)
		v.Generation++
		_, err = r.UpdateVolume(context.Background(), rev, v)
		return err
	})
}

// TestErasableLater: a volume gets keys that can be destroyed when its owner wants them later, and
// others when he does not want them any more.
func TestErasableLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	for n, erase := range []encryption.Erase{encryption.EraseOnPurge, encryption.EraseNever} {
		c.change(id, func(v *federation.Volume) { v.Spec.Encryption.Erase = erase })
		c.until("another data key follows", func() error {
			r := c.ring(id)
			if len(r.Later) != n+1 || (len(r.Later[n].Under) > 0) != (erase == encryption.EraseOnPurge) {
				return fmt.Errorf("%d keys", len(r.Keys()))
			}
			return nil
		})
		names = append(names, c.load(a, fmt.Sprint("g", n))()...)
	}
	has(t, c.router("b", id), names)
	c.stop("a")
	has(t, c.router("b", id), names)
}

// TestLostSecret: with all pools that had the secret, the volume is lost, and says so; other
// volumes are served.
func TestLostSecret(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	c.signed()
	id, other := c.createAt("v", eraseManifest("v", 1), []string{"a"}), c.createAt("w", manifest("w", 1), []string{"a"})
	a := c.router("a", id)
	c.load(a, "f")()
	c.stop("a")
	if err := os.Remove(filepath.Join(c.dir, "a", "volumes", "keys", id)); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	c.router("a", other)
	c.until("it says why it cannot be opened", func() error {
		s, ok := c.at("a").copies.State(id)
		if !ok || s.Problem == nil || !strings.Contains(s.Problem.Error(), "bring one back that had it, with its pool") {
			return fmt.Errorf("%v", s.Problem)
		}
		return nil
	})
}
