// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/volume"
)

// check has a site's gateway check a volume, for a person of an organization.
func (c *cluster) check(organization, site string, q *forwardpb.CheckRequest) (r *checking.Report, failed string, err error) {
	c.t.Helper()
	conn := c.dialAs(pki.Identity{Federation: "test", Organization: organization, Site: site, Gateway: "x", Part: pki.PartPerson}, site)
	stream, err := forwardpb.NewForwardClient(conn).Check(c.t.Context(), q)
	for err == nil {
		var part *forwardpb.CheckPart
		if part, err = stream.Recv(); err == nil && len(part.GetJson()) > 0 {
			return r, part.GetFailed(), json.Unmarshal(part.GetJson(), &r)
		}
	}
	return nil, "", err
}

// checked is check by the site's own organization, of a check that comes to its end.
func (c *cluster) checked(site, id string, data, repair bool) *checking.Report {
	c.t.Helper()
	r, failed, err := c.check("org-"+site, site, &forwardpb.CheckRequest{Volume: id, Data: data, Repair: repair})
	if err != nil || failed != "" || !r.Complete || r.Volume != "v" || r.Gateway != "g"+site || r.Site != site {
		c.t.Fatalf("the check at %s: %+v, %s, %v", site, r, failed, err)
	}
	return r
}

// damages checks what a report lists, each as place, kind, path and whether it is repaired.
func (c *cluster) damages(r *checking.Report, want ...string) {
	c.t.Helper()
	var got []string
	for _, d := range r.Damage {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %t %s", d.Where, d.Kind, d.Repaired, d.Path)))
		if d.Detail == "" || d.Repaired != (d.Advice == "") {
			c.t.Errorf("%+v", d)
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		c.t.Fatalf("the check found %q, want %q: %+v", got, want, r.Damage)
	}
}

// settledAt waits until a site has the log of the home, and its store all of it.
func (c *cluster) settledAt(home, id, site string) {
	c.t.Helper()
	of := c.router(home, id).Copy()
	end := of.Log.End()
	if end.Off <= segment.HeaderSize {
		end = of.Log.Sealed(end)
	}
	of.Replica.Roll()
	c.until("all is in the store of "+site, func() error {
		there := c.router(site, id).Copy()
		if there == nil {
			return errors.New("no copy is open")
		}
		l := there.Log
		if l.Sealed(l.End()).Less(end) || l.UnstoredBytes(l.End()) > 0 {
			return fmt.Errorf("it is sealed up to %v, want %v, and %d bytes are not stored", l.Sealed(l.End()), end,
				l.UnstoredBytes(l.End()))
		}
		return nil
	})
}

// holding returns the segment that has the data of what fill wrote as a file, and where in it.
func (c *cluster) holding(site, id string, file int) (s log.SegmentInfo, off int) {
	c.t.Helper()
	l := c.router(site, id).Copy().Log
	n := -1
	if err := l.Replay(c.t.Context(), log.Position{}, func(e log.Entry) error {
		if e.Record != nil && len(e.Record.Blocks) > 0 {
			if n++; n == 2*file+1 { // the second of its two blocks
				s, _ = l.Segment(e.End.Seq)
				off = int(e.Record.Blocks[0].Ref.Off)
			}
		}
		return nil
	}); err != nil || s.Len == 0 {
		c.t.Fatalf("file %d is in segment %+v, %v", file, s, err)
	}
	return s, off
}

// poolFile is the file of a segment on a site's pool.
func (c *cluster) poolFile(site, id string, seq uint64) string {
	return filepath.Join(c.dir, site, "volumes", id, fmt.Sprintf("%016x.seg", seq))
}

// flip damages a byte of a segment on a site's pool. It returns what was there.
func (c *cluster) flip(site, id string, seq uint64, off int) (whole []byte) {
	c.t.Helper()
	path := c.poolFile(site, id, seq)
	whole, err := os.ReadFile(path)
	if err == nil {
		b := bytes.Clone(whole)
		b[off+5] ^= 1
		f, oerr := os.OpenFile(path, os.O_WRONLY, 0)
		if err = oerr; err == nil {
			_, err = f.WriteAt(b, 0)
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return whole
}

// spoil damages a byte of a segment in a site's store, or takes it away.
func (c *cluster) spoil(site string, s log.SegmentInfo, off int) {
	c.t.Helper()
	b := make([]byte, s.Len)
	in := c.nodes[site].store
	err := in.GetRange(c.t.Context(), s.Name, 0, b)
	if err == nil {
		err = in.Delete(c.t.Context(), s.Name)
	}
	if err == nil && off > 0 {
		b[off+5] ^= 1
		err = in.Put(c.t.Context(), s.Name, int64(len(b)), bytes.NewReader(b))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// inStore reports whether a site's store has a segment whole.
func (c *cluster) inStore(site string, s log.SegmentInfo, whole []byte) bool {
	b := make([]byte, s.Len)
	return c.nodes[site].store.GetRange(c.t.Context(), s.Name, 0, b) == nil && bytes.Equal(b, whole)
}

// TestCheckOfSegments: damage on the pool and in the store is told as bytes of files. It is
// repaired from other copies, and only when a person says so. What no copy has stays an error.
func TestCheckOfSegments(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 5*time.Second, "a", "b")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 10)
	c.settledAt("a", id, "a")
	c.settledAt("a", id, "b")
	healthy := func(site string) {
		t.Helper()
		r := c.checked(site, id, true, false)
		c.damages(r)
		if r.Segments < 4 || r.Objects != r.Segments || r.Bytes == 0 || r.Metadata.Inodes != 11 || r.Home != (site == "a") || !r.Data {
			t.Fatalf("%+v, %+v", r, r.Metadata)
		}
	}
	healthy("a")
	healthy("b")

	// A byte of a file on the pool.
	s, off := c.holding("b", id, 4)
	whole := c.flip("b", id, s.Seq, off)
	c.damages(c.checked("b", id, false, false)) // without reading data nobody sees it
	r := c.checked("b", id, true, false)
	c.damages(r, "pool Segment false", "pool Unreadable false /file 4")
	if i := slices.IndexFunc(r.Damage, func(d checking.Damage) bool { return d.Path != "" }); r.Damage[i].To == 0 ||
		r.Damage[i].To-r.Damage[i].From > 64<<10 || r.Damage[i].Segment != s.Seq || r.Left() != 2 || r.Lost() != 0 {
		t.Errorf("%+v", r.Damage)
	}
	if b, err := os.ReadFile(c.poolFile("b", id, s.Seq)); err != nil || bytes.Equal(b, whole) {
		t.Errorf("a check that is to change nothing healed the file, %v", err)
	}
	r = c.checked("b", id, true, true)
	c.damages(r, "pool Segment true", "pool Unreadable true /file 4")
	if b, err := os.ReadFile(c.poolFile("b", id, s.Seq)); err != nil || !bytes.Equal(b, whole) || r.Left() != 0 || r.Repaired() != 2 {
		t.Errorf("the file is not what it was, %v, %+v", err, r)
	}
	healthy("b")

	// A byte in the store; and an object that is missing.
	c.spoil("a", s, off)
	c.damages(c.checked("a", id, false, false))
	c.damages(c.checked("a", id, true, false), "store Segment false", "store Unreadable false /file 4")
	c.damages(c.checked("a", id, true, true), "store Segment true", "store Unreadable true /file 4")
	if !c.inStore("a", s, whole) {
		t.Error("the store does not have it whole")
	}
	c.spoil("a", s, 0)
	c.damages(c.checked("a", id, false, false), "store Segment false", "store Unreadable false /file 4", "store Unreadable false /file 5",
		"store Unreadable false /file 6")
	c.damages(c.checked("a", id, false, true), "store Segment true", "store Unreadable true /file 4", "store Unreadable true /file 5",
		"store Unreadable true /file 6")
	if now, _ := c.router("a", id).Copy().Log.Segment(s.Seq); !now.Uploaded || !c.inStore("a", s, whole) {
		t.Errorf("the store does not have it again: %+v", now)
	}
	healthy("a")

	// The same byte in all copies.
	for _, site := range []string{"a", "b"} {
		c.flip(site, id, s.Seq, off)
		c.spoil(site, s, off)
	}
	r = c.checked("a", id, true, true)
	c.damages(r, "nowhere Unreadable false /file 4", "pool Segment false", "store Segment false")
	if n := r.Lost(); n == 0 || n > 64<<10 {
		t.Errorf("%d bytes are lost", n)
	}
	router := c.router("b", id)
	filled(t, router, 0, 4)
	filled(t, router, 5, 10)
	a, err := router.Lookup(t.Context(), volume.Request{}, volume.Root, "file 4")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := router.Read(t.Context(), volume.Request{}, a.Handle, 0, make([]byte, len(block(4)))); err == nil {
		t.Error("what no copy has is read")
	}

	// Who may ask.
	for q, code := range map[*forwardpb.CheckRequest]codes.Code{{Volume: id}: codes.PermissionDenied,
		{Volume: "none"}: codes.PermissionDenied} {
		if _, _, err := c.check("org-z", "b", q); status.Code(err) != code {
			t.Errorf("%v: %v", q, err)
		}
	}
	if _, _, err := c.check("org-b", "b", &forwardpb.CheckRequest{Volume: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a volume that is not there: %v", err)
	}
}

// edit changes the metadata of a site's copy while its gateway is stopped.
func (c *cluster) edit(site, id string, change func(s *meta.Store) []segment.Op) {
	c.t.Helper()
	ring, _, err := c.reg.Client(nil).GetKeyring(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	keys, err := c.nodes[site].key.UnwrapAll(ring, site)
	if err != nil {
		c.t.Fatal(err)
	}
	c.stop(site)
	s, err := meta.Open(meta.Options{FS: vfs.Default, Dir: filepath.Join(c.dir, site, "volumes", id, "meta"), DataKey: keys[0],
		Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler), Failed: func(why error) { c.t.Error(why) }})
	if err != nil {
		c.t.Fatal(err)
	}
	err = s.Apply([][]segment.Op{change(s)}, s.State())
	if err := errors.Join(err, s.Close()); err != nil {
		c.t.Fatal(err)
	}
	c.start(site)
}

// TestCheckOfMetadata: a wrong count of what is used is set right by the home, and by nobody else.
// A copy that lost an inode is told with the path.
func TestCheckOfMetadata(t *testing.T) {
	c := newCluster(t)
	c.look = time.Hour // no home counts again by itself
	for _, s := range []string{"a", "b"} {
		c.add(s)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 6)
	miscount := func(s *meta.Store) []segment.Op {
		value, _, _, err := s.Live(nil).Get(meta.AccountingKey())
		if err != nil {
			t.Fatal(err)
		}
		used, err := meta.DecodeAccounting(meta.AccountingKey(), value)
		if err != nil {
			t.Fatal(err)
		}
		used.Bytes += 1000
		k, v := used.Encode()
		return []segment.Op{{Kind: segment.Set, Key: k, Value: v}}
	}
	settled := func() (home, other string) {
		t.Helper()
		c.router("a", id)
		c.router("b", id)
		home, other = strings.TrimPrefix(c.homeOf("a", id), "g"), "a"
		if home == "a" {
			other = "b"
		}
		c.settledAt(home, id, other)
		return home, other
	}
	end := c.router("a", id).Copy().Log.End()
	for _, s := range []string{"a", "b"} { // or a record that says what is used comes after the mistake
		c.until("all is applied at "+s, func() error {
			there := c.router(s, id).Copy()
			if there == nil || there.Engine.Applied().Less(end) {
				return errors.New("it is not")
			}
			return nil
		})
	}
	c.edit("a", id, miscount)
	c.edit("b", id, miscount)
	home, other := settled()
	c.damages(c.checked(home, id, false, false), "metadata Quota false")
	r := c.checked(other, id, false, true)
	c.damages(r, "metadata Quota false")
	if !strings.Contains(r.Damage[0].Detail, "only the volume's home counts again") {
		t.Errorf("%+v", r.Damage)
	}
	c.damages(c.checked(home, id, false, true), "metadata Quota true")
	c.damages(c.checked(home, id, true, false))
	c.settledAt(home, id, other)
	c.damages(c.checked(other, id, true, false))

	a, err := c.router(other, id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 2")
	if err != nil {
		t.Fatal(err)
	}
	c.edit(other, id, func(*meta.Store) []segment.Op {
		return []segment.Op{{Kind: segment.Delete, Key: meta.InodeKey(a.Handle.Ino)}}
	})
	home, other = settled()
	where := "b" // what was edited last
	if !slices.Contains([]string{home, other}, where) {
		t.Fatal(home, other)
	}
	for _, site := range []string{home, other} {
		r := c.checked(site, id, false, false)
		if broken := slices.ContainsFunc(r.Damage, func(d checking.Damage) bool {
			return d.Where == checking.Metadata && d.Kind == fsck.Name && d.Path == "/file 2"
		}); broken == (len(r.Damage) == 0) {
			t.Errorf("at %s: %+v", site, r.Damage)
		} else if broken {
			where = site
		}
	}
	if home = strings.TrimPrefix(c.homeOf("a", id), "g"); home == where { // nothing is closed under clients
		r := c.checked(where, id, false, true)
		if r.Left() == 0 || !strings.Contains(r.Damage[0].Advice, "weir failover") {
			t.Errorf("%+v", r.Damage)
		}
		return
	}
	if r := c.checked(where, id, false, true); r.Left() != 0 || len(r.Damage) == 0 {
		t.Errorf("%+v", r.Damage)
	}
	c.damages(c.checked(where, id, true, false))
}
