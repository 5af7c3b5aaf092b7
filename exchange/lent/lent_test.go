// SPDX-License-Identifier: Apache-2.0

package lent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

func TestLent(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	b := r.as("B", "b-0", pki.PartGateway).bucket(deal)
	r.ok(put(ctx, b, "b-0/volumes/x/0001", 400))
	r.ok(put(ctx, b, "b-0/volumes/x/0001", 400)) // again
	if err := put(ctx, b, "b-0/volumes/x/0001", 401); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an object is replaced: %v", err)
	}
	text := make([]byte, 100)
	r.ok(b.GetRange(ctx, "b-0/volumes/x/0001", 300, text))
	if string(text) != strings.Repeat("x", 100) {
		t.Errorf("%q", text)
	}
	if err := b.GetRange(ctx, "b-0/volumes/x/0001", 350, text); !errors.Is(err, store.ErrShort) {
		t.Errorf("it is longer: %v", err)
	}
	if _, err := b.Stat(ctx, "b-0/none"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("%v", err)
	}
	second := r.as("B", "b-1", pki.PartGateway).bucket(deal)
	r.ok(put(ctx, second, "b-1/volumes/x/0002", 100))
	var all []string
	r.ok(second.List(ctx, "", func(i store.Info) error { all = append(all, i.Name); return nil }))
	if strings.Join(all, " ") != "b-0/volumes/x/0001 b-1/volumes/x/0002" {
		t.Errorf("%q", all)
	}
	r.ok(second.Delete(ctx, "b-0/volumes/x/0001"))
	r.ok(second.Delete(ctx, "b-0/volumes/x/0001"))
	if _, err := b.Stat(ctx, "b-0/volumes/x/0001"); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// eventually waits until something is so.
func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	for range 200 {
		if is() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.Fatalf("it does not come true that %s", what)
}

// stored is what the store below has of an agreement.
func (r *rig) stored(id string) (objects int, bytes int64) {
	r.Helper()
	r.ok(r.below.List(r.Context(), "lent/"+id+"/", func(i store.Info) error {
		objects++
		bytes += i.Size
		return nil
	}))
	return objects, bytes
}

// met meets the store, as a gateway that counted nothing.
func (o *one) met(id string) (m lent.Met) {
	o.Helper()
	o.ok(o.ask("/.weir/count", lent.Counted{Agreement: id}, &m))
	return m
}

// 16 writers fill an agreement while the registry is away, and the store ends and begins again: not
// one byte more is stored than was agreed, and not much less.
func TestRoomUnderManyWriters(t *testing.T) {
	const amount, most = 64 << 10, 3 << 10
	r := newRig(t)
	r.agree(ended, "B", amount, "b-0")
	r.start()
	g := r.as("B", "b-0", pki.PartGateway)
	_ = g.granted(ended)
	r.eventually("the room is known", func() bool { return put(t.Context(), g.bucket(ended), "b-0/first", 1) == nil })
	r.registry.SetDown(true)
	r.stop()
	r.start()
	b := g.bucket(ended)
	var all sync.WaitGroup
	var full atomic.Int64
	for i := range 16 {
		all.Go(func() {
			for n := 0; ; n++ {
				err := put(t.Context(), b, fmt.Sprintf("b-0/w%d/%d", i, n), 1+(i*997+n*331)%most)
				if errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "no room") {
					full.Add(1)
					return
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	objects, bytes := r.stored(ended)
	if full.Load() != 16 || bytes > amount || bytes < amount-most {
		t.Errorf("%d writers were refused; %d of %d bytes are there", full.Load(), bytes, amount)
	}
	if m := g.met(ended); int64(m.Stored) != bytes || int64(m.Puts) != int64(objects) || int64(m.In) != bytes {
		t.Errorf("%d objects of %d bytes are counted as %+v", objects, bytes, m)
	}
	left := int(amount - bytes)
	if err := put(t.Context(), b, "b-0/beyond", left+1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("one byte more is taken: %v", err)
	}
	r.ok(put(t.Context(), b, "b-0/last", left))
	if err := put(t.Context(), b, "b-0/more", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("one byte more is taken: %v", err)
	}
	if _, bytes = r.stored(ended); bytes != amount {
		t.Errorf("%d bytes are there", bytes)
	}
}

// A clock that is wrong refuses, and says so. It deletes nothing, and revives nothing.
func TestClock(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	early := g.granted(deal)
	b := g.with(early, deal)
	r.eventually("an object is put", func() bool { return put(ctx, b, "b-0/x", 100) == nil })
	r.set(26 * time.Hour)
	if err := put(ctx, b, "b-0/y", 1); !errors.Is(err, store.ErrAccess) || !strings.Contains(err.Error(), "by this store's clock it is") {
		t.Errorf("a capability that ended is good: %v", err)
	}
	r.ok(put(ctx, g.bucket(deal), "b-0/y", 1)) // with another one
	r.eventually("the time is proved", func() bool {
		u, err := r.registry.GetPaper(ctx, paper.UsageName(deal, paper.Host, "ams"))
		return err == nil && u.Usage.At.After(time.Now().Add(25*time.Hour+time.Minute))
	})
	r.set(0)
	if err := put(ctx, b, "b-0/z", 1); !errors.Is(err, store.ErrAccess) {
		t.Errorf("a clock that is set back revives a capability: %v", err)
	}
	r.stop()
	r.start()
	if err := put(ctx, g.with(early, deal), "b-0/z", 1); !errors.Is(err, store.ErrAccess) {
		t.Errorf("a new start revives a capability: %v", err)
	}
	r.set(9999 * time.Hour)
	late := g.bucket(deal)
	if err := put(ctx, late, "b-0/z", 1); !errors.Is(err, store.ErrAccess) || !strings.Contains(err.Error(), "Breached") {
		t.Errorf("it is written after the end: %v", err)
	}
	time.Sleep(time.Second) // some rounds
	r.ok(late.GetRange(ctx, "b-0/x", 0, make([]byte, 100)))
	if n, _ := r.stored(deal); n != 2 {
		t.Errorf("%d objects are there", n)
	}
}

// A store that was killed counts again what is there, and takes from the gateway what it lost.
func TestKilled(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	b := g.bucket(deal)
	r.eventually("an object is put", func() bool { return put(ctx, b, "b-0/x", 100) == nil })
	_ = g.met(deal)
	r.eventually("it is saved", func() bool {
		text, err := os.ReadFile(filepath.Join(r.dir, "own", "ledger.json"))
		return err == nil && bytes.Contains(text, []byte(`"stored":"100"`))
	})
	before, err := os.ReadFile(filepath.Join(r.dir, "own", "ledger.json"))
	r.ok(err)
	r.ok(put(ctx, b, "b-0/y", 50))
	for range 3 {
		r.ok(b.GetRange(ctx, "b-0/x", 0, make([]byte, 10)))
	}
	now := g.met(deal)
	r.stop()
	r.ok(os.WriteFile(filepath.Join(r.dir, "own", "ledger.json"), before, 0o600)) // as a crash leaves it
	r.start()
	var m lent.Met
	r.ok(g.ask("/.weir/count", lent.Counted{Agreement: deal, Counters: now.Counters}, &m))
	if m.Puts != 2 || m.In != 150 || m.Stored != 150 || m.Gets != 3 || m.Out != 30 || m.ByteHours < now.ByteHours {
		t.Errorf("%+v, before it was killed %+v", m, now)
	}
	r.ok(os.WriteFile(filepath.Join(r.dir, "own", "key"), []byte("short"), 0o600))
	r.stop()
	if _, err := lent.Open(ctx, lent.Config{Organization: "A", Site: "ams", Store: r.below, Dir: filepath.Join(r.dir, "own"),
		Now: r.now}); err == nil || !strings.Contains(err.Error(), "has 5 bytes, not 32: delete it") {
		t.Errorf("%v", err)
	}
}

// At the end of an agreement nothing of the guest stays, and the store signs how much it was.
func TestErased(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	b := g.bucket(deal)
	r.eventually("an object is put", func() bool { return put(ctx, b, "b-0/x", 100) == nil })
	r.ok(put(ctx, b, "b-0/deep/er/y", 50))
	c := r.as("C", "c-0", pki.PartGateway).bucket(other)
	r.eventually("another puts one", func() bool { return put(ctx, c, "c-0/x", 10) == nil })
	r.change(paper.RequestName(deal), func(p *paper.Paper) { p.Request.Drained = &paper.Moment{At: time.Now().UTC(), By: "b"} })
	r.change(paper.AnswerName(deal), func(p *paper.Paper) { p.Answer.Deleting = &paper.Moment{At: time.Now().UTC(), By: "a"} })
	var u *paper.Usage
	erased := func() bool {
		p, err := r.registry.GetPaper(ctx, paper.UsageName(deal, paper.Host, "ams"))
		u = p.Usage
		return err == nil && u.Erased != nil
	}
	r.eventually("the store says that it deleted everything", erased)
	if u.Erased.Objects != 2 || u.Erased.Bytes != 150 || u.All().Stored != 0 || u.Erased.By != "weir://demo/A/ams/a-store" {
		t.Errorf("%+v", u.Erased)
	}
	if n, _ := r.stored(deal); n != 0 {
		t.Errorf("%d objects are left", n)
	}
	if err := b.GetRange(ctx, "b-0/x", 0, make([]byte, 1)); !errors.Is(err, store.ErrAccess) {
		t.Errorf("it is read: %v", err)
	}
	r.ok(c.GetRange(ctx, "c-0/x", 0, make([]byte, 10)))
	was := *u.Erased
	r.stop()
	r.start()
	r.eventually("it is told again", func() bool { return erased() && u.At.After(was.At) })
	if *u.Erased != was {
		t.Errorf("%+v, and before it began again %+v", u.Erased, was)
	}
}

// slow is a body whose last bytes come when it is told.
type slow struct {
	left    int
	release chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left <= 10 {
		<-s.release
	}
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), max(s.left-10, 1), s.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	s.left -= n
	return n, nil
}

// An object that is on its way when everything is deleted does not come after all.
func TestPutOutlivesTheEnd(t *testing.T) {
	const size = 300_000 // more than the library reads ahead
	r := newRig(t)
	r.agree(ended, "B", 1<<20, "b-0")
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	granted := g.granted(ended)
	r.eventually("an object is put", func() bool { return put(ctx, g.with(granted, ended), "b-0/x", 100) == nil })
	body := &slow{left: size, release: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		done <- g.raw(granted, http.MethodPut, "/"+ended+"/b-0/late", "", func(q *http.Request) {
			q.Body, q.ContentLength = io.NopCloser(body), size
			sum := sha256.Sum256(bytes.Repeat([]byte("x"), size))
			q.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
		}, nil)
	}()
	time.Sleep(300 * time.Millisecond)
	r.change(paper.RequestName(ended), func(p *paper.Paper) { p.Request.Drained = &paper.Moment{At: time.Now().UTC(), By: "b"} })
	r.change(paper.AnswerName(ended), func(p *paper.Paper) { p.Answer.Deleting = &paper.Moment{At: time.Now().UTC(), By: "a"} })
	r.eventually("the store says that it deleted everything", func() bool {
		p, err := r.registry.GetPaper(ctx, paper.UsageName(ended, paper.Host, "ams"))
		return err == nil && p.Usage.Erased != nil
	})
	close(body.release)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "is Drained") {
		t.Errorf("it comes after all: %v", err)
	}
	if n, _ := r.stored(ended); n != 0 {
		t.Errorf("%d objects are there", n)
	}
}

// One organization's requests that do not go on keep another's from nothing.
func TestManyStall(t *testing.T) {
	const size = 300_000
	r := newRig(t)
	r.agree(ended, "B", 1<<30, "b-0")
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	granted := g.granted(ended)
	c := r.as("C", "c-0", pki.PartGateway).bucket(other)
	r.eventually("objects are put", func() bool {
		return put(ctx, g.with(granted, ended), "b-0/x", 1) == nil && put(ctx, c, "c-0/x", 1) == nil
	})
	release := make(chan struct{})
	var all sync.WaitGroup
	var refused atomic.Int64
	for n := range 80 {
		all.Go(func() {
			err := g.raw(granted, http.MethodPut, fmt.Sprintf("/%s/b-0/s%d", ended, n), "", func(q *http.Request) {
				q.Body, q.ContentLength = io.NopCloser(&slow{left: size, release: release}), size
				q.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			}, nil)
			if err != nil {
				refused.Add(1)
			}
		})
	}
	r.eventually("there are too many", func() bool { return refused.Load() > 0 })
	r.ok(c.GetRange(ctx, "c-0/x", 0, make([]byte, 1)))
	r.ok(put(ctx, c, "c-0/y", 1))
	close(release)
	all.Wait()
	if n := refused.Load(); n != 80-64 {
		t.Errorf("%d of 80 are refused", n)
	}
}

// failing is a store that does what it is asked, and then says that it did not.
type failing struct {
	store.Store
	mu sync.Mutex
	on bool
}

func (f *failing) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on
}

func (f *failing) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *failing) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	err := f.Store.Put(ctx, name, size, body)
	if err == nil && f.fails() {
		err = store.ErrUnavailable
	}
	return err
}

func (f *failing) Delete(ctx context.Context, name string) error {
	err := f.Store.Delete(ctx, name)
	if err == nil && f.fails() {
		err = store.ErrUnavailable
	}
	return err
}

// What the store below has counts, whatever it says.
func TestStoreBelowLies(t *testing.T) {
	r := newRig(t)
	f := &failing{Store: r.below}
	r.below = f
	r.start()
	ctx := t.Context()
	g := r.as("B", "b-0", pki.PartGateway)
	b := g.bucket(deal)
	r.eventually("an object is put", func() bool { return put(ctx, b, "b-0/x", 100) == nil })
	f.set(true)
	r.ok(put(ctx, b, "b-0/y", 800))
	if err := put(ctx, b, "b-0/z", 101); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("more than was agreed is taken: %v", err)
	}
	r.ok(b.Delete(ctx, "b-0/x"))
	if m := g.met(deal); m.Stored != 800 || m.Puts != 2 || m.Deletes != 1 {
		t.Errorf("%+v", m)
	}
}

// A registry that hides what both signed, or shows something earlier, ends nothing.
func TestRegistryHides(t *testing.T) {
	r := newRig(t)
	r.start()
	ctx := t.Context()
	b := r.as("B", "b-0", pki.PartGateway).bucket(deal)
	r.eventually("an object is put", func() bool { return put(ctx, b, "b-0/x", 100) == nil })
	for _, name := range []string{paper.RequestName(deal), paper.AnswerName(deal), paper.RoomName(deal, "b-0")} {
		p, err := r.registry.GetPaper(ctx, name)
		r.ok(err)
		r.ok(r.registry.DeletePaper(ctx, name, p.Revision))
	}
	time.Sleep(300 * time.Millisecond)
	r.ok(put(ctx, b, "b-0/y", 100))
	r.stop()
	r.start()
	time.Sleep(300 * time.Millisecond)
	again := r.as("B", "b-0", pki.PartGateway).bucket(deal)
	r.ok(again.GetRange(ctx, "b-0/y", 0, make([]byte, 100)))
	r.ok(put(ctx, again, "b-0/z", 100))
}
