// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weir-storage/weir/cachepool"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/journal"
)

// ailing is a pool whose disk can be full, although the pool's own room is not.
type ailing struct {
	cachepool.Pool
	full *atomic.Bool
}

func (p ailing) Volume(uuid string) (cachepool.Dir, error) {
	d, err := p.Pool.Volume(uuid)
	return ailingDir{d, p.full}, err
}

type ailingDir struct {
	cachepool.Dir
	full *atomic.Bool
}

func (d ailingDir) Create(name string) (cachepool.File, error) {
	if d.full.Load() {
		return nil, syscall.ENOSPC
	}
	f, err := d.Dir.Create(name)
	return ailingFile{f, d.full}, err
}

func (d ailingDir) Open(name string) (cachepool.File, error) {
	f, err := d.Dir.Open(name)
	return ailingFile{f, d.full}, err
}

type ailingFile struct {
	cachepool.File
	full *atomic.Bool
}

func (f ailingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

// TestFullDisk: the disk of a home is full, whatever the room of its pool. The home gives its reign
// up, and says why. When there is room again it goes on by itself, in the same process, and nothing
// that was acknowledged is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, sites := range [][]string{{"a"}, {"a", "b"}} {
		t.Run(strings.Join(sites, ""), func(t *testing.T) {
			full := new(atomic.Bool)
			c := newCluster(t, sites...)
			c.pool = func(site string, p cachepool.Pool) cachepool.Pool {
				if site == "a" {
					return ailing{p, full}
				}
				return p
			}
			c.stop("a")
			c.start("a")
			id := c.create("v", manifest("v", len(sites)))
			cl := &client{name: "a"}
			early := file(t, c.router("a", id), cl, "early")
			full.Store(true)
			done := make(chan struct{})
			go func() {
				defer close(done)
				file(t, c.router("a", id), cl, "late") // waits
			}()
			c.until("the copy says that its disk is full", func() error {
				s, _ := c.at("a").copies.State(id)
				if s.Copy != nil || s.Problem == nil || !strings.Contains(s.Problem.Error(), "no space left on device") {
					return errors.New("not yet")
				}
				return nil
			})
			time.Sleep(100 * time.Millisecond)
			full.Store(false)
			<-done
			for _, s := range c.order {
				readable(t, c.router(s, id), early)
			}
			file(t, c.router("a", id), cl, "later")
		})
	}
}

// TestFullDiskOfMetadata: the metadata of a volume find no room on the disk, or the disk fails. The
// copy closes and says why, other volumes open meanwhile, and it goes on by itself when the disk is
// well, in the same process, with all that was acknowledged.
func TestFullDiskOfMetadata(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{".sst", "MANIFEST"} {
		t.Run(kind, func(t *testing.T) {
			var ill atomic.Pointer[string] // the volume whose metadata cannot be written
			none := ""
			ill.Store(&none)
			c := newCluster(t, "a")
			c.fs = func(string) vfs.FS {
				return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
					id := *ill.Load()
					if id == "" || op.Kind.ReadOrWrite() == errorfs.OpIsRead ||
						!strings.Contains(op.Path, id) || !strings.Contains(op.Path, kind) {
						return nil
					}
					return syscall.ENOSPC
				}))
			}
			c.stop("a")
			c.start("a")
			id := c.create("v", manifest("v", 1))
			cl := &client{name: "a"}
			early := file(t, c.router("a", id), cl, "early")
			copied := c.at("a").copies.Copy(id)
			if err := copied.Engine.WaitApplied(within(t, hang), copied.Log.End()); err != nil {
				t.Fatal(err)
			}
			ill.Store(&id)
			if err := copied.Engine.Flush(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("metadata that find no room: %v", err)
			}
			c.until("the copy says that its disk is full", func() error {
				s, _ := c.at("a").copies.State(id)
				if s.Copy != nil || s.Problem == nil || !strings.Contains(s.Problem.Error(), "the disk has no room") {
					return fmt.Errorf("not yet: %v", s.Problem)
				}
				return nil
			})
			other := c.create("w", manifest("w", 1))
			file(t, c.router("a", other), cl, "other")
			ill.Store(&none)
			file(t, c.router("a", id), cl, "late")
			readable(t, c.router("a", id), early)
		})
	}
}

// TestForgottenGatewayRegistersAnew: a gateway that a person forgot too early is there again soon.
func TestForgottenGatewayRegistersAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	person := c.reg.Client(nil)
	there := func() error {
		sites, err := person.Sites(t.Context())
		if err == nil && (len(sites) != 1 || len(sites[0].Site.Gateways) != 1 || !sites[0].Alive["ga"]) {
			err = errors.New("not yet")
		}
		return err
	}
	c.until("it is registered", there)
	if err := person.RemoveGateway(t.Context(), "a", "ga"); err != nil {
		t.Fatal(err)
	}
	c.until("it is registered anew", there)
}

// TestServerOwners: the gateways of a federation are different servers in one scope, also after
// they start again (protocol-27). Linux would merge two with one owner.
func TestServerOwners(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 2))
	for _, site := range []string{"a", "b"} {
		c.admit(site, id)
	}
	owner := func(site string) nfsclient.ServerInfo {
		cl, err := nfsclient.Dial(within(t, hang), c.nodes[site].nfs, nfsclient.Options{Owner: "owners"})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Abandon()
		return cl.Server()
	}
	a, b := owner("a"), owner("b")
	if a.Owner == b.Owner || a.Scope != b.Scope || a.Scope == "" {
		t.Errorf("servers are %+v and %+v", a, b)
	}
	c.stop("b")
	c.start("b")
	if again := owner("b"); again.Owner != b.Owner || again.Scope != b.Scope {
		t.Errorf("after a restart %+v is %+v", b, again)
	}
}

// TestReadYourWrites: a change that a gateway forwards is applied to its own copy before it is
// answered (protocol-25).
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "b"}
	b := c.router("b", id)
	file(t, b, cl, "first")
	c.until("b has a copy that serves", func() error {
		l := c.at("b").copies.Copy(id)
		if l == nil {
			return errors.New("not yet")
		}
		return l.MayServe()
	})
	for i := range 50 {
		h := file(t, b, cl, fmt.Sprint("f", i))
		l := c.at("b").copies.Copy(id)
		if pos := l.Engine.Touched(h.Ino); pos != (journal.Position{}) && l.MayServe() == nil {
			t.Fatalf("file %d: what was answered is not applied up to %v", i, pos)
		}
	}
}

// TestWallClockJumps: a gateway that sees the wall clock jump, as after its machine was stopped
// from outside, ends its homes' segments, and goes on.
func TestWallClockJumps(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	var ahead atomic.Int64
	c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c.stop("a")
	c.start("a")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	early := file(t, c.router("a", id), cl, "early")
	l := c.at("a").copies.Copy(id).Log
	before := l.End().Seq
	ahead.Store(int64(time.Minute))
	records, began := 0, time.Now()
	c.until("its segment is ended by the next record", func() error {
		if time.Since(began) > hang/2 {
			t.Fatal("it is not, and may soon be for its age")
		}
		file(t, c.router("a", id), cl, fmt.Sprint("record", records)) // an idle segment ends by itself
		records++
		if l.End().Seq == before {
			return errors.New("not yet")
		}
		return nil
	})
	file(t, c.router("a", id), cl, "late")
	for _, s := range c.order {
		readable(t, c.router(s, id), early)
	}
}

// TestIdleVolumeMakesRoom: a volume that filled the pool, and is idle, makes room for another.
func TestIdleVolumeMakesRoom(t *testing.T) {
	t.Parallel()
	_, write := smallPool(t, 100<<20)
	write("idle", 110) // as much as there is room for, and more
	write("new", 40)
}

// TestDeletedVolumeMakesRoom: what the store has of a deleted volume leaves the pool at once, not
// when the volume is purged.
func TestDeletedVolumeMakesRoom(t *testing.T) {
	t.Parallel()
	c, write := smallPool(t, 220<<20)
	id := write("gone", 130) // two segments, and the beginning of one
	c.until("what is sealed is in the store", func() error {
		if left := c.at("a").copies.Copy(id).Replica.UploadQueue(); left > 0 {
			return fmt.Errorf("%d bytes are not", left)
		}
		return nil
	})
	c.delete(id)
	c.until("it is closed", func() error {
		if _, there := c.at("a").copies.State(id); there {
			return errors.New("not yet")
		}
		return nil
	})
	if used := c.at("a").pools.Main().Room().Status().Used; used > 64<<20 {
		t.Errorf("%d bytes of the pool are used", used)
	}
	write("new", 1)
}

// smallPool returns a gateway with a pool of that many bytes, and a function that writes so many
// MiB to a new volume.
func smallPool(t *testing.T, limit int64) (c *cluster, write func(name string, mib int) (id string)) {
	c = newCluster(t, "a")
	c.limit = limit
	c.stop("a")
	c.start("a")
	return c, func(name string, mib int) string {
		t.Helper()
		id := c.create(name, manifest(name, 1))
		cl := &client{name: name}
		r := c.router("a", id)
		f := file(t, r, cl, "f")
		for i := range mib {
			data := make([]byte, 1<<20)
			_, _ = rand.Read(data) // never fails; what can be compressed takes no room
			if _, err := r.Write(within(t, hang), cl.next(), f, uint64(i)<<20, data, true); err != nil {
				t.Fatalf("%s, MiB %d: %v", name, i, err)
			}
		}
		return id
	}
}
