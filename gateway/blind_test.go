// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/volume"
)

// blind makes the copies of a volume at some sites blind, and no others.
func (c *cluster) blind(id string, sites ...string) {
	c.t.Helper()
	c.change(id, func(v *federation.Volume) {
		v.Blind = sites
		slices.SortStableFunc(v.Sites, func(a, b string) int { // the first has the key
			return cmp.Compare(btoi(v.IsBlind(a)), btoi(v.IsBlind(b)))
		})
		v.Grants = slices.DeleteFunc(v.Grants, func(g federation.Grant) bool { return v.IsBlind(g.Site) })
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isBlind waits until the copy at a site is, or is not.
func (c *cluster) isBlind(id, site string, want bool) {
	c.t.Helper()
	c.until(fmt.Sprintf("the copy at %s is blind: %t", site, want), func() error {
		s := c.at(site).reporter.Status(id)
		if len(s) != 1 || s[0].Problem != "" || s[0].Role == "None" || s[0].Blind != want {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// newBlindCluster returns a cluster with a volume at a, b and c, of which b is blind, in an order
// in which it would be member, and home.
func newBlindCluster(t *testing.T, members int) (*cluster, string) {
	t.Helper()
	c := newCluster(t, "a", "b", "c")
	c.signed()
	id := c.createAt("v", manifest("v", members), []string{"a", "b", "c"})
	c.router("a", id)
	c.blind(id, "b")
	c.isBlind(id, "b", true)
	return c, id
}

// TestBlindCopy: the owner makes a copy blind. What is written from then on is sealed with a key
// that its site does not have, its metadata go, and it goes on as a member. The home is lost: the
// blind member hands on to the third copy, which reads everything. The copy gets the key back, and
// reads everything too.
func TestBlindCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	c.signed()
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	a := c.router("a", id)
	c.router("b", id)
	c.members(id, "a", "b")
	names := c.load(a, "before")()
	stop := c.load(a, "while")
	c.blind(id, "b")
	c.isBlind(id, "b", true)
	c.until("another data key follows", func() error {
		if r := c.ring(id); len(r.Later) != 1 || len(r.Newest()["b"]) > 0 || len(r.Newest()["a"]) == 0 {
			return fmt.Errorf("there are %d, the newest for %d sites", len(r.Later)+1, len(r.Newest()))
		}
		return nil
	})
	theirs, err := c.nodes["b"].key.UnwrapAll(c.ring(id), "b")
	if err != nil {
		t.Fatal(err)
	}
	c.until("new data is sealed with it", func() error {
		if _, closed := c.sealedFor("b", id, theirs); closed[1] < 10 {
			return fmt.Errorf("b cannot read %v", closed)
		}
		return nil
	})
	names = append(names, stop()...)
	c.members(id, "a", "b")
	if _, err := os.Stat(filepath.Join(c.dir, "b", "volumes", id, "meta")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its metadata are still there: %v", err)
	}

	c.change(id, func(v *federation.Volume) {
		v.Sites = append(v.Sites, "c")
	})
	has(t, c.router("c", id), names)
	c.stop("a")
	r := c.router("c", id)
	has(t, r, names)
	names = append(names, c.load(r, "after")()...)
	c.members(id, "b", "c")

	// The blind copy starts again, and then gets the key.
	c.stop("b")
	c.start("b")
	c.isBlind(id, "b", true)
	c.blind(id)
	c.isBlind(id, "b", false)
	has(t, c.router("b", id), names)
	c.start("a")
	has(t, c.router("a", id), names)
}

// TestBlindHomeHandsOver: the owner makes the home's copy blind. It hands over before.
func TestBlindHomeHandsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	c.blind(id, "a")
	c.until("b is home", func() error {
		if home, _ := c.at("b").view.Home(id); home != "gb" {
			return fmt.Errorf("it is %s", home)
		}
		return nil
	})
	c.isBlind(id, "a", true)
	c.members(id, "a", "b")
	has(t, c.router("b", id), names)
}

// asks sends an operation on the root from a site's gateway to the one at a, as a hostile one
// might.
func (c *cluster) asks(site, id string, m forwardpb.Method) error {
	client, err := c.at(site).peers.Forward("ga")
	if err != nil {
		return err
	}
	reply, err := client.Call(context.Background(), &forwardpb.CallRequest{Volume: id, Method: m,
		Handle: &forwardpb.Handle{Ino: volume.Root.Ino, Gen: volume.Root.Gen}, Length: 100})
	if err == nil && reply.GetOutcome() != 0 {
		err = errors.New(reply.GetDetail())
	}
	return err
}

// TestBlindGatewayGetsNothing: what a hostile gateway at a site with a blind copy asks the home for
// is refused, and so is a move of the home there.
func TestBlindGatewayGetsNothing(t *testing.T) {
	t.Parallel()
	c, id := newBlindCluster(t, 2)
	b := c.at("b")
	c.until("the home has heard that the copy is blind", func() error { return c.inForce(id, 2) })
	c.until("c may ask", func() error { return c.asks("c", id, forwardpb.Method_METHOD_GET_ATTR) })
	for _, m := range []forwardpb.Method{forwardpb.Method_METHOD_GET_ATTR, forwardpb.Method_METHOD_READ_DIR,
		forwardpb.Method_METHOD_SPACE} {
		if err := c.asks("c", id, m); err != nil {
			t.Errorf("c, %v: %v", m, err)
		}
		if err := c.asks("b", id, m); err == nil {
			t.Errorf("the home answers b, %v", m)
		}
	}
	if err := c.failover(t, "b", id, false); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "blind") {
		t.Errorf("a move to it: %v", err)
	}
	if b.copies.Copy(id) != nil {
		t.Error("it serves")
	}
}

// TestBlindPoolHasNoName: nothing on the pool, and nothing in the store, of a site whose copy was
// always blind has a name or contents, and the key is nowhere. A copy with the key has, for whoever
// has the key.
func TestBlindPoolHasNoName(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createBlind("v", manifest("v", 2), []string{"a", "b"}, "b")
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "a-name-that-nobody-else-has")()
	keys, err := c.nodes["a"].key.UnwrapAll(c.ring(id), "a")
	if err != nil {
		t.Fatal(err)
	}
	needles := [][]byte{[]byte("a-name-that-nobody-else-has"), []byte(names[0])}
	for _, k := range keys {
		needles = append(needles, k[:])
	}
	if len(c.ring(id).Wrapped["b"]) > 0 {
		t.Error("the key is wrapped for the blind copy")
	}
	files := 0
	err = filepath.WalkDir(filepath.Join(c.dir, "b"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		for _, n := range needles {
			if bytes.Contains(text, n) {
				t.Errorf("%s has %q", path, n)
			}
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files, %v", files, err)
	}
	if opened, closed := c.sealedFor("b", id, keys); opened[0] < len(names) || len(closed) > 0 {
		t.Errorf("it has %v that the key opens, and %v that it does not", opened, closed)
	}
}

// TestBlindCopyByForce: the home, the only member, is lost. A person has the blind copy keep what
// it has: it leads, and hands on to the first copy with the key that comes.
func TestBlindCopyByForce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createBlind("v", manifest("v", 1), []string{"a", "b"}, "b")
	names := c.load(c.router("a", id), "f")()
	c.until("b has everything", func() error {
		a, b := c.at("a").reporter.Status(id), c.at("b").reporter.Status(id)
		if len(a) != 1 || len(b) != 1 || a[0].End != b[0].End {
			return fmt.Errorf("%+v, %+v", a, b)
		}
		return nil
	})
	c.stop("a")
	c.until("a is taken for lost", func() error {
		err := c.failover(t, "b", id, false)
		if err == nil || !strings.Contains(err.Error(), "HomeLost") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	c.unforced(t, "b", id)
	if err := c.failover(t, "b", id, true); err != nil {
		t.Fatal(err)
	}
	c.until("b leads and says what it waits for", func() error {
		if s := c.at("b").reporter.Status(id); len(s) != 1 || s[0].Role != report.Steward {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.start("a")
	has(t, c.router("a", id), names)
	c.members(id, "a")
}

// TestKeysTurnAround: in one change the copy with the key, which is home, becomes blind, and the
// blind one gets the key. The home wraps it, hands over, and becomes blind.
func TestKeysTurnAround(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createBlind("v", manifest("v", 2), []string{"a", "b"}, "b")
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	c.blind(id, "a")
	c.isBlind(id, "a", true)
	c.isBlind(id, "b", false)
	has(t, c.router("b", id), names)
	c.members(id, "a", "b")
	c.until("another data key follows", func() error {
		if r := c.ring(id); len(r.Later) != 1 || len(r.Newest()["a"]) > 0 {
			return fmt.Errorf("there are %d, the newest for %d sites", len(r.Later)+1, len(r.Newest()))
		}
		return nil
	})
	names = append(names, c.load(c.router("b", id), "g")()...)
	has(t, c.router("b", id), names)
}

// TestStewardIsToGetTheKey: the home is lost, and the owner lets the blind copy, which leads, have
// the key. It stays as it is until somebody is back who has the key.
func TestStewardIsToGetTheKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createBlind("v", manifest("v", 2), []string{"a", "b"}, "b")
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	c.stop("a")
	steward := func() error {
		if s := c.at("b").reporter.Status(id); len(s) != 1 || s[0].Role != report.Steward {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}
	c.until("b leads", steward)
	c.blind(id)
	c.stop("b") // also after a restart
	c.start("b")
	c.until("b leads again", steward)
	c.start("a")
	has(t, c.router("a", id), names)
	c.isBlind(id, "b", false)
	has(t, c.router("b", id), names)
	c.members(id, "a", "b")
}

// TestLeavingBlindCopyGetsNoKey: a blind copy is to go. While it is a member still, it gets no key,
// also not after a restart; and it goes.
func TestLeavingBlindCopyGetsNoKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	c.signed()
	id := c.createBlind("v", manifest("v", 2), []string{"a", "b"}, "b")
	a := c.router("a", id)
	c.members(id, "a", "b")
	names := c.load(a, "f")()
	c.stop("c") // which is to have one instead, and is away
	c.change(id, func(v *federation.Volume) { v.Sites, v.Blind = []string{"a", "c"}, nil })
	c.until("the home has taken that up", func() error { return c.inForce(id, 2) })
	c.stop("b")
	c.start("b")
	c.isBlind(id, "b", true)
	names = append(names, c.load(a, "g")()...)
	c.members(id, "a", "b")
	c.start("c")
	has(t, c.router("c", id), names)
	c.members(id, "a", "c")
	c.dropped("b", id)
	if r := c.ring(id); len(r.Wrapped["b"]) > 0 || len(r.Later) > 0 {
		t.Errorf("the key is wrapped for %d sites, and there are %d", len(r.Wrapped), len(r.Later)+1)
	}
}

// TestHomeThatIsToBeBlindRestarts: the copy that is to be home instead is away. The home serves
// meanwhile, also after a restart, and hands over when that is back.
func TestHomeThatIsToBeBlindRestarts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	c.signed()
	id := c.createAt("v", manifest("v", 1), []string{"a", "b"})
	names := c.load(c.router("a", id), "f")()
	c.router("b", id)
	c.stop("b")
	c.blind(id, "a")
	c.until("it says why it is not blind yet", func() error {
		if s := c.at("a").reporter.Status(id); len(s) != 1 || !strings.Contains(s[0].Leaving, "to be blind") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	for i := range 2 {
		c.stop("a")
		c.start("a")
		has(t, c.router("a", id), names)
		names = append(names, c.load(c.router("a", id), fmt.Sprint("g", i, "-"))()...)
	}
	c.start("b")
	c.isBlind(id, "a", true)
	has(t, c.router("b", id), names)
}
