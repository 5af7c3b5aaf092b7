// SPDX-License-Identifier: Apache-2.0

// Package borrowed is a guest's end of a lent store (package lent): a store.Store whose objects are
// in the bucket of an agreement, and what its gateway counts there.
//
// A gateway puts objects into its own folder of the bucket, and finds those of all gateways of its
// organization. It asks the store for capabilities on its own certificate.
package borrowed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/exchange/lent"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/s3"
)

// Config says which room, and for whom.
type Config struct {
	Agreement string
	// Guest, Host and Site are those of the agreement's terms.
	Guest, Host, Site string
	// Endpoint is the store's URL.
	Endpoint    string
	Gateway     string
	Credentials *pki.Credentials
	// Ledger is what this gateway counted, of all its agreements.
	Ledger *ledger.Ledger
	Book   paper.Book
	Now    func() time.Time
	// Wrap may change how requests are sent, in tests; nil: it does not.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Store is room under one agreement. Its methods may be called from many goroutines.
type Store struct {
	cfg  Config
	http http.RoundTripper

	counting sync.RWMutex // held for writing while what is stored is counted again

	mu     sync.Mutex
	client *s3.Store // nil: there is no capability
	renew  time.Time // by this gateway's clock
	places map[string]string
	spots  map[string]string // folders of objects when all were listed last; "": of one in several
}

var _ store.Store = (*Store)(nil)

// New prepares the store. Nothing is dialled. Errors wrap store.ErrInvalid.
func New(cfg Config) (*Store, error) {
	if !strings.HasPrefix(cfg.Endpoint, "https://") {
		return nil, fmt.Errorf("agreement %s: %w: its store's endpoint is %q: its host has to say a URL that begins with https://",
			cfg.Agreement, store.ErrInvalid, cfg.Endpoint)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = cfg.Credentials.ClientByIdentity(pki.Expect{Organizations: []string{cfg.Host}, Site: cfg.Site, Part: pki.PartStore})
	t.MaxIdleConnsPerHost, t.DisableCompression = 32, true
	s := &Store{cfg: cfg, http: t, places: map[string]string{}}
	if cfg.Wrap != nil {
		s.http = cfg.Wrap(t)
	}
	return s, nil
}

// String names the store in messages.
func (s *Store) String() string {
	return fmt.Sprintf("room lent by %s at site %s, agreement %s", s.cfg.Host, s.cfg.Site, s.cfg.Agreement)
}

// definite are outcomes of calls that the store did not count.
var definite = []error{store.ErrNotExist, store.ErrShort, store.ErrConflict, store.ErrAccess, store.ErrInvalid}

func (s *Store) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if !slices.ContainsFunc(definite, func(is error) bool { return errors.Is(err, is) }) {
		s.cfg.Ledger.Doubt(s.cfg.Agreement, s.cfg.Gateway)
	}
	is := &store.Error{}
	if errors.As(err, &is) {
		out := *is
		out.Op, out.Store, out.Name = op, s.String(), name
		return &out
	}
	return &store.Error{Op: op, Store: s.String(), Name: name, Err: fmt.Errorf("%w (%w)", store.ErrUnavailable, err)}
}

// mostAnswer bounds an answer of the store's own service, in bytes.
const mostAnswer = 64 << 10

// ask calls the store's own service.
func (s *Store) ask(ctx context.Context, path string, q, a any) error {
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.Endpoint+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: s.http}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	switch {
	case err != nil:
		return err
	case res.StatusCode == http.StatusForbidden:
		return &store.Error{Err: fmt.Errorf("%w: %s", store.ErrAccess, got)}
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", res.Status, got)
	}
	return json.Unmarshal(got, a)
}

// bucket is the agreement's bucket, by a capability that has not ended.
func (s *Store) bucket(ctx context.Context) (*s3.Store, error) {
	s.mu.Lock()
	is, renew := s.client, s.renew
	s.mu.Unlock()
	if is != nil && s.cfg.Now().Before(renew) {
		return is, nil
	}
	var g lent.Granted
	if err := s.ask(ctx, lent.CapabilityPath, lent.Asked{Agreement: s.cfg.Agreement}, &g); err != nil {
		return nil, err
	}
	is, err := s3.New(s3.Config{Endpoint: s.cfg.Endpoint, Bucket: s.cfg.Agreement, AccessKey: g.Access, SecretKey: g.Secret,
		Transport: s.http})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.renew = is, s.cfg.Now().Add(g.Until.Sub(g.Now)/2) // the store's clock may be another
	return is, nil
}

// with does something with the bucket, once more with another capability if this one is refused.
func (s *Store) with(ctx context.Context, do func(*s3.Store) error) error {
	for again := true; ; again = false {
		b, err := s.bucket(ctx)
		if err != nil {
			return err
		}
		err = do(b)
		if !again || !errors.Is(err, store.ErrAccess) {
			return err
		}
		s.mu.Lock()
		if s.client == b {
			s.client = nil
		}
		s.mu.Unlock()
	}
}

func (s *Store) own(name string) string { return s.cfg.Gateway + "/" + name }

// Put implements store.Store. What another gateway of this organization has put is there.
func (s *Store) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if err := store.CheckName(s.own(name)); err != nil {
		return err
	}
	s.counting.RLock()
	defer s.counting.RUnlock()
	return s.fail("put", name, s.with(ctx, func(b *s3.Store) error {
		i, err := s.stat(ctx, b, name, false) // what is put twice harms nobody
		switch {
		case err == nil && i.Size == size:
			return nil
		case err == nil:
			return &store.Error{Err: fmt.Errorf("%w: it has %d bytes, not %d: compare both with their hash, and delete the damaged one",
				store.ErrConflict, i.Size, size)}
		case !errors.Is(err, store.ErrNotExist):
			return err
		}
		if err := b.Put(ctx, s.own(name), size, body); err != nil {
			return err
		}
		s.ledger(quantity.Bytes(size))
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, elsewhere := s.spots[name]; elsewhere { // or it was
			delete(s.spots, name)
		} else if s.spots != nil {
			s.spots[name] = s.cfg.Gateway
		}
		return nil
	}))
}

// ledger counts an object that was put.
func (s *Store) ledger(size quantity.Bytes) {
	done, err := s.cfg.Ledger.Reserve(s.cfg.Agreement, s.cfg.Gateway, size, ledger.Limit{Amount: 1 << 62, Room: 1 << 62})
	if err == nil { // the store has looked whether there is room
		done(true)
	}
}

// stat finds an object in this gateway's folder, or in another's.
func (s *Store) stat(ctx context.Context, b *s3.Store, name string, everywhere bool) (store.Info, error) {
	i, err := b.Stat(ctx, s.own(name))
	if !errors.Is(err, store.ErrNotExist) {
		return i, err
	}
	place, err := s.place(ctx, b, name, everywhere)
	if err != nil {
		return i, err
	}
	return b.Stat(ctx, place)
}

// place is where another gateway of this organization has put an object. ErrNotExist. everywhere:
// the bucket is asked too who has a folder.
func (s *Store) place(ctx context.Context, b *s3.Store, name string, everywhere bool) (string, error) {
	s.mu.Lock()
	is := s.places[name]
	s.mu.Unlock()
	if is != "" {
		return is, nil
	}
	all, err := s.folders(ctx, b, everywhere)
	if err != nil {
		return "", err
	}
	for _, f := range all {
		at := f + "/" + name
		if _, err := b.Stat(ctx, at); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.places) >= mostPlaces {
				clear(s.places)
			}
			s.places[name] = at
			return at, nil
		} else if !errors.Is(err, store.ErrNotExist) {
			return "", err
		}
	}
	return "", &store.Error{Err: store.ErrNotExist}
}

// mostPlaces is how many objects of other gateways are remembered.
const mostPlaces = 10_000

// folders are those of other gateways: the first object after one folder is in the next.
func (s *Store) folders(ctx context.Context, b *s3.Store, everywhere bool) (out []string, err error) {
	seen := map[string]bool{s.cfg.Gateway: true}
	rooms, err := s.cfg.Book.ListPapers(ctx, string(paper.FormRoom)+"/"+s.cfg.Agreement+"/")
	if err == nil {
		for _, p := range rooms {
			if p.Room != nil && !seen[p.Room.Gateway] {
				seen[p.Room.Gateway] = true
				out = append(out, p.Room.Gateway)
			}
		}
		if !everywhere {
			return out, nil
		}
	}
	// The registry is away, or does not show all: the bucket tells.
	err = b.List(ctx, "", func(i store.Info) error {
		if f, _, ok := strings.Cut(i.Name, "/"); ok && !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
		return nil
	})
	return out, err
}

// GetRange implements store.Store.
func (s *Store) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	if err := store.CheckName(s.own(name)); err != nil || len(p) == 0 {
		return err
	}
	return s.fail("get", name, s.with(ctx, func(b *s3.Store) error {
		err := b.GetRange(ctx, s.own(name), off, p)
		if errors.Is(err, store.ErrNotExist) {
			at, place := s.place(ctx, b, name, true)
			if place != nil {
				return place
			}
			if err = b.GetRange(ctx, at, off, p); errors.Is(err, store.ErrNotExist) {
				s.mu.Lock()
				delete(s.places, name)
				s.mu.Unlock()
			}
		}
		if err == nil {
			s.cfg.Ledger.Read(s.cfg.Agreement, s.cfg.Gateway, quantity.Bytes(len(p)))
		}
		return err
	}))
}

// Stat implements store.Store.
func (s *Store) Stat(ctx context.Context, name string) (i store.Info, err error) {
	if err := store.CheckName(s.own(name)); err != nil {
		return i, err
	}
	err = s.fail("stat", name, s.with(ctx, func(b *s3.Store) error {
		i, err = s.stat(ctx, b, name, true)
		return err
	}))
	i.Name = name
	return i, err
}

// askTime is how long a list or a count waits for what comes next. It may have many parts.
const askTime = time.Minute

// progress returns a context that ends when goes was not called for askTime. Call done at the end.
func progress(ctx context.Context) (_ context.Context, goes, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stuck := time.AfterFunc(askTime, cancel)
	return ctx, func() { stuck.Reset(askTime) }, func() { stuck.Stop(); cancel() }
}

// List implements store.Store: objects of all gateways of this organization. It remembers where
// they are, so that each is deleted without a search.
func (s *Store) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	ctx, goes, done := progress(ctx)
	defer done()
	all := map[string]store.Info{}
	spots := map[string]string{}
	if err := s.fail("list", prefix, s.with(ctx, func(b *s3.Store) error {
		clear(all)
		clear(spots)
		return b.List(ctx, "", func(i store.Info) error {
			goes()
			f, name, ok := strings.Cut(i.Name, "/")
			if !ok {
				return nil
			}
			if _, twice := spots[name]; twice {
				f = ""
			}
			spots[name] = f
			if i.Name = name; strings.HasPrefix(name, prefix) {
				all[name] = i
			}
			return nil
		})
	})); err != nil {
		return err
	}
	s.mu.Lock()
	s.spots = spots
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := fn(all[name]); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements store.Store: in all folders that have the object.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := store.CheckName(s.own(name)); err != nil {
		return err
	}
	s.counting.RLock()
	defer s.counting.RUnlock()
	return s.fail("delete", name, s.with(ctx, func(b *s3.Store) error {
		s.mu.Lock()
		folder := s.spots[name]
		s.mu.Unlock()
		var err error
		if folder != "" {
			err = s.delete(ctx, b, folder, name)
		} else {
			err = s.search(ctx, b, name)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.places, name)
		delete(s.spots, name)
		return nil
	}))
}

// search deletes an object in all folders that have it.
func (s *Store) search(ctx context.Context, b *s3.Store, name string) error {
	others, err := s.folders(ctx, b, true)
	if err != nil {
		return err
	}
	for _, f := range append([]string{s.cfg.Gateway}, others...) {
		if err := s.delete(ctx, b, f, name); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes an object in a folder, if it is there, and counts it: the store counts no deletion
// of what is not there.
func (s *Store) delete(ctx context.Context, b *s3.Store, folder, name string) error {
	i, err := b.Stat(ctx, folder+"/"+name)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = b.Delete(ctx, folder+"/"+name)
	}
	if err == nil {
		s.cfg.Ledger.Deleted(s.cfg.Agreement, s.cfg.Gateway, folder, quantity.Bytes(i.Size))
	}
	return err
}

// Count counts again what is stored in this gateway's folder, and meets the store: whoever lost its
// counters takes the other's (ledger-3). Puts and deletions wait meanwhile.
func (s *Store) Count(ctx context.Context) error {
	s.counting.Lock()
	defer s.counting.Unlock()
	ctx, goes, done := progress(ctx)
	defer done()
	var is ledger.Tally
	if err := s.fail("list", "", s.with(ctx, func(b *s3.Store) error {
		is = ledger.Tally{}
		return b.List(ctx, s.own(""), func(i store.Info) error {
			goes()
			is.Objects++
			is.Bytes += quantity.Bytes(i.Size)
			return nil
		})
	})); err != nil {
		return err
	}
	s.cfg.Ledger.Recount(s.cfg.Agreement, map[string]ledger.Tally{s.cfg.Gateway: is})
	goes()
	var m lent.Met
	if err := s.ask(ctx, lent.CountPath, lent.Counted{Agreement: s.cfg.Agreement,
		Counters: s.cfg.Ledger.Of(s.cfg.Agreement)[s.cfg.Gateway].Counters}, &m); err != nil {
		return s.fail("count", "", err)
	}
	s.cfg.Ledger.Meet(s.cfg.Agreement, s.cfg.Gateway, m.Counters)
	return nil
}

// Tell writes what this gateway counted into the registry.
func (s *Store) Tell(ctx context.Context) error {
	a := s.cfg.Ledger.Of(s.cfg.Agreement)[s.cfg.Gateway]
	u := &paper.Usage{ID: s.cfg.Agreement, Guest: s.cfg.Guest, Host: s.cfg.Host, By: s.cfg.Gateway, Organization: s.cfg.Guest,
		At: s.cfg.Now().UTC().Truncate(time.Second), Of: map[string]paper.Counters{s.cfg.Gateway: a.Counters}}
	if !a.Taken.IsZero() {
		u.Taken = map[string]time.Time{s.cfg.Gateway: a.Taken}
	}
	p := paper.Paper{Usage: u}
	is, err := s.cfg.Book.GetPaper(ctx, p.Name())
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return err
	}
	return s.cfg.Book.PutPapers(ctx, paper.At{Paper: p, Revision: is.Revision})
}
