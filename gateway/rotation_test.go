// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/pki"
)

// signed puts a charter into the registry that asks for signatures.
func (c *cluster) signed() {
	c.t.Helper()
	root, err := c.ca.Pair()
	if err != nil {
		c.t.Fatal(err)
	}
	is := pki.Charter{Federation: "test", Serial: 1, SignedSince: time.Now()}
	for _, s := range c.order {
		is.Set(pki.Organization{Name: "org-" + s, Authorities: []string{string(root.Cert)}})
	}
	text, err := c.ca.SignCharter(is)
	if err != nil {
		c.t.Fatal(err)
	}
	c.with(func(r federation.Registry) error {
		_, err := r.PutCharter(context.Background(), 0, federation.Charter{Serial: 1, Signed: text})
		return err
	})
}

// ring is a volume's keyring.
func (c *cluster) ring(id string) (ring federation.Keyring) {
	c.t.Helper()
	c.with(func(r federation.Registry) (err error) {
		ring, _, err = r.GetKeyring(context.Background(), id)
		return err
	})
	return ring
}

// sealedFor returns by number of the data key how many records of a volume's log at a site can be
// opened with keys, and how many cannot.
func (c *cluster) sealedFor(site, id string, keys map[uint32]segment.DataKey) (opened, closed map[uint32]int) {
	c.t.Helper()
	opened, closed = map[uint32]int{}, map[uint32]int{}
	for _, path := range c.segments(site, id) {
		text, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		h, err := segment.DecodeHeader(text)
		if err != nil {
			c.t.Fatal(err)
		}
		for off := segment.HeaderSize; off < len(text); {
			f, err := segment.Next(text[off:])
			if err != nil {
				break // it grows
			}
			can := false
			for _, key := range keys { // whichever: who is curious tries them all
				o, err := segment.NewOpener(&key, h)
				if err != nil {
					c.t.Fatal(err)
				}
				_, err = o.DecodeRecord(f.Bytes, uint64(off))
				can = can || err == nil
			}
			if can {
				opened[h.Key]++
			} else {
				closed[h.Key]++
			}
			off += len(f.Bytes)
		}
	}
	return opened, closed
}

// TestRevokedSiteLosesTheKey: when the owner takes a grant back, what is written from then on is
// sealed with a data key that the site does not have. The owner's writers notice nothing; all
// copies read everything, also after a takeover and a restart; and a site that gets a grant again
// reads everything too.
func TestRevokedSiteLosesTheKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	c.signed()
	id := c.createAt("v", manifest("v", 2), []string{"a", "c"})
	a := c.router("a", id)
	c.members(id, "a", "c")
	c.admit("b", id)
	ctx := within(t, 4*hang)
	theirs, root := c.mount(ctx, "b", "theirs", "v")
	if _, err := theirs.Open(ctx, root, "f", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true}); err != nil {
		t.Fatal(err)
	}
	c.until("b has the key", func() error {
		if r := c.ring(id); len(r.Wrapped["b"]) == 0 || len(r.Later) > 0 {
			return fmt.Errorf("it is wrapped for %d sites", len(r.Wrapped))
		}
		return nil
	})
	stop := c.load(a, "f")
	c.with(func(r federation.Registry) error {
		return r.DeleteAdmission(context.Background(), id, "b", "127.0.0.1")
	})
	others := []federation.Grant{{Site: "c", Namespace: "lab", Access: federation.ReadWrite}}
	c.change(id, func(v *federation.Volume) { v.Grants = others })
	c.until("another data key follows", func() error {
		r := c.ring(id)
		if len(r.Later) != 1 || len(r.Newest()["a"]) == 0 || len(r.Newest()["c"]) == 0 || len(r.Newest()["b"]) > 0 {
			return fmt.Errorf("there are %d, the newest for %d sites", len(r.Later)+1, len(r.Newest()))
		}
		return nil
	})
	b := c.nodes["b"].key
	theirKeys, err := b.UnwrapAll(c.ring(id), "b")
	if err != nil || len(theirKeys) != 1 {
		t.Fatalf("b has %d data keys, %v", len(theirKeys), err)
	}
	c.until("new data is sealed with it", func() error {
		if _, closed := c.sealedFor("a", id, theirKeys); closed[1] < 10 {
			return fmt.Errorf("b cannot read %v", closed)
		}
		return nil
	})
	names := stop()
	opened, closed := c.sealedFor("a", id, theirKeys)
	if opened[0] == 0 || opened[1] > 0 || closed[0] > 0 {
		t.Errorf("b can read %v, and cannot %v", opened, closed)
	}
	ours, err := c.nodes["c"].key.UnwrapAll(c.ring(id), "c")
	if err != nil || len(ours) != 2 {
		t.Fatalf("c has %d data keys, %v", len(ours), err)
	}
	if _, closed := c.sealedFor("a", id, ours); len(closed) > 0 {
		t.Errorf("c cannot read %v", closed)
	}

	// The other copy has it all, and takes over; and reads it when it starts again.
	c.stop("a")
	r := c.router("c", id)
	has(t, r, names)
	c.start("a")
	names = append(names, c.load(r, "g")()...)
	c.stop("c")
	c.start("c")
	has(t, c.router("c", id), names)
	has(t, c.router("a", id), names)

	// b gets a grant again, and all keys with it.
	c.change(id, func(v *federation.Volume) {
		v.Grants = append(others, federation.Grant{Site: "b", Namespace: "lab", Access: federation.ReadOnly})
	})
	c.admit("b", id)
	c.until("b has all keys", func() error {
		all, err := b.UnwrapAll(c.ring(id), "b")
		if err == nil && len(all) != 2 {
			err = fmt.Errorf("it has %d", len(all))
		}
		return err
	})
	has(t, c.router("b", id), names)
	if r := c.ring(id); len(r.Later) != 1 {
		t.Errorf("there are %d data keys", len(r.Later)+1)
	}
}

// TestNoKeyIsReplacedBeforeAllKnowIt: without a charter that asks for signatures there may be
// gateways of a release that knows one data key per volume.
func TestNoKeyIsReplacedBeforeAllKnowIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	c.router("a", id)
	c.admit("b", id)
	c.until("b has the key", func() error {
		if len(c.ring(id).Wrapped["b"]) == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	c.with(func(r federation.Registry) error {
		return r.DeleteAdmission(context.Background(), id, "b", "127.0.0.1")
	})
	c.change(id, func(v *federation.Volume) { v.Grants = nil })
	c.until("the home has taken that up", func() error { return c.inForce(id, 2) })
	if r := c.ring(id); len(r.Later) > 0 {
		t.Error("another data key follows")
	}
	c.signed()
	c.until("another data key follows", func() error {
		if r := c.ring(id); len(r.Later) != 1 {
			return fmt.Errorf("there are %d", len(r.Later)+1)
		}
		return nil
	})
}
