// SPDX-License-Identifier: Apache-2.0

package lent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/exchange/capability"
	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/exchange/lent/s3gw"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
)

// Registry is what a store needs of it.
type Registry interface {
	paper.Book
	federation.Watcher
}

// Meter counts what a store refuses, by operation.
type Meter interface{ Refused(op string) }

// Config is what a store needs.
type Config struct {
	Organization, Site string
	// By is the URI of the store's certificate.
	By string
	// Store is where the objects are. The prefix lent/ in it is this store's alone.
	Store store.Store
	// Dir is a folder of the store's own, which keeps its key, what it counted, and what both sides
	// of its agreements signed.
	Dir         string
	Credentials *pki.Credentials
	Registry    Registry
	Now         func() time.Time
	// Pause waits, and reports whether ctx goes on.
	Pause func(ctx context.Context, d time.Duration) bool
	// Tell is how often it says in the registry what it counted; 0: once an hour.
	Tell time.Duration
	// Meter may be nil.
	Meter Meter
	Log   *slog.Logger
}

// Store is a lent store. Make it with Open; one serves in a process.
type Store struct {
	cfg    Config
	key    capability.Key
	deals  *deals
	ledger *ledger.Ledger
	behind http.Handler
	tls    *tls.Config
	socket string

	mu      sync.Mutex
	erased  map[string]paper.Deletion // by agreement
	erasing map[string]paper.Deletion // what there was when it began
	serving map[string]int            // requests, by organization
	told    map[string]told           // what was counted and said last, by agreement
}

// told is what a store said of an agreement.
type told struct {
	at     time.Time
	stored quantity.Bytes
}

// Open reads what the store has kept in its folder, and counts what is stored.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, erased: map[string]paper.Deletion{}, erasing: map[string]paper.Deletion{}, told: map[string]told{},
		serving: map[string]int{}, socket: filepath.Join(cfg.Dir, "s3.sock")}
	var err error
	if s.key, err = openKey(filepath.Join(cfg.Dir, "key")); err != nil {
		return nil, err
	}
	if s.deals, err = openDeals(filepath.Join(cfg.Dir, "agreements.json"), cfg.Organization, cfg.Site, cfg.Now); err != nil {
		return nil, err
	}
	if s.ledger, err = ledger.Open(filepath.Join(cfg.Dir, "ledger.json"), cfg.Now); err != nil {
		return nil, err
	}
	if err := s.recount(ctx); err != nil {
		return nil, err
	}
	s.tls = cfg.Credentials.Server(pki.Expect{})
	dial := net.Dialer{}
	s.behind = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "s3"
			r.Out.Host = r.In.Host // it is signed
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dial.DialContext(ctx, "unix", s.socket)
			}},
		ErrorLog:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		ModifyResponse: s.look,
	}
	return s, nil
}

// mostTold is how much of an answer is looked at that refuses, in bytes.
const mostTold = 4 << 10

// look notes what is refused behind the front: signatures, room, and what is there already.
func (s *Store) look(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusPreconditionFailed,
		http.StatusRequestEntityTooLarge:
	default:
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, mostTold))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
	var told struct{ Code, Message string }
	_ = xml.Unmarshal(text, &told) // an answer to a HEAD has none
	peer, _ := pki.PeerIdentity(*r.Request.TLS)
	bucket, _, _ := strings.Cut(strings.TrimPrefix(r.Request.URL.Path, "/"), "/")
	s.refused(opOf(r.Request.Method), peer.Organization, peer.Gateway, bucket, strings.TrimSpace(told.Code+" "+told.Message+" "+r.Status))
	return err
}

// openKey reads the store's key, or draws one.
func openKey(path string) (capability.Key, error) {
	is, err := os.ReadFile(path)
	if err == nil && len(is) != capability.KeySize {
		err = fmt.Errorf("the store's key %s has %d bytes, not %d: delete it, and gateways ask for new capabilities", path, len(is),
			capability.KeySize)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return is, err
	}
	k, err := capability.NewKey()
	if err != nil {
		return nil, err
	}
	return k, ledger.Replace(path, k)
}

// recount counts what is stored (ledger-2).
func (s *Store) recount(ctx context.Context) error {
	found := map[string]map[string]ledger.Tally{}
	for _, id := range s.ledger.Agreements() {
		found[id] = map[string]ledger.Tally{}
	}
	err := s.cfg.Store.List(ctx, prefix, func(i store.Info) error {
		parts := strings.SplitN(strings.TrimPrefix(i.Name, prefix), "/", 3)
		if len(parts) < 3 {
			return nil
		}
		by := found[parts[0]]
		if by == nil {
			by = map[string]ledger.Tally{}
			found[parts[0]] = by
		}
		t := by[parts[1]]
		by[parts[1]] = ledger.Tally{Objects: t.Objects + 1, Bytes: t.Bytes + quantity.Bytes(i.Size)}
		return nil
	})
	for id, by := range found {
		s.ledger.Recount(id, by)
	}
	return err
}

func (s *Store) refused(op, organization, gateway, agreement, why string) {
	s.cfg.Log.Warn("a request is refused", "audit", "refused", "op", op, "organization", organization, "gateway", gateway,
		"agreement", agreement, "why", why)
	if s.cfg.Meter != nil {
		s.cfg.Meter.Refused(op)
	}
}

// How often the store saves what it counted, says it in the registry, looks for agreements of which
// it said nothing yet, and for what is to be deleted.
const (
	saveEvery  = time.Second
	tellEvery  = time.Hour
	lookEvery  = time.Minute
	eraseEvery = 5 * time.Second
	watchAgain = time.Second
)

// Serve serves at a listener until ctx ends.
func (s *Store) Serve(ctx context.Context, l net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var parts sync.WaitGroup
	var failed error
	parts.Go(func() {
		defer end()
		_ = os.Remove(s.socket) // of a process that was killed
		failed = s3gw.Run(ctx, s3gw.Config{Socket: s.socket, Objects: &objects{s: s}, Secret: s.secret, Told: func(op, name string,
			err error) {
			s.cfg.Log.Error("the store below fails", "op", op, "object", name, "error", err)
		}})
	})
	parts.Go(func() { s.watch(ctx) })
	parts.Go(func() { s.every(ctx, saveEvery, s.save) })
	parts.Go(func() { s.every(ctx, eraseEvery, s.erase) })
	parts.Go(func() { s.every(ctx, lookEvery, s.tell) })
	h := &http.Server{Handler: http.HandlerFunc(s.serve), TLSConfig: s.tls, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	served := h.Serve(tls.NewListener(l, h.TLSConfig))
	end()
	parts.Wait()
	if errors.Is(served, http.ErrServerClosed) {
		served = nil
	}
	return errors.Join(served, failed, s.deals.save(), s.ledger.Close())
}

// secret is the secret of an access key that may be this store's.
func (s *Store) secret(access string) (string, error) {
	c, err := capability.Read(access)
	if err == nil && c.Store != s.cfg.Site {
		err = capability.ErrInvalid
	}
	if err != nil {
		return "", err
	}
	return s.key.Secret(access), nil
}

// every does something now and then, until ctx ends.
func (s *Store) every(ctx context.Context, d time.Duration, do func(context.Context) error) {
	for s.cfg.Pause(ctx, d) {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("it is tried again", "error", err)
		}
	}
}

func (s *Store) save(context.Context) error { return errors.Join(s.deals.save(), s.ledger.Save()) }

// watch follows the registry.
func (s *Store) watch(ctx context.Context) {
	for {
		names := map[string]bool{}
		err := s.cfg.Registry.Watch(ctx, func(e federation.Event) error {
			if e.Kind == federation.KindSynced {
				s.deals.only(names)
				return nil
			}
			s.deals.event(e)
			if e.Kind == federation.KindCharter && e.Charter != nil {
				if _, err := s.cfg.Credentials.Adopt(e.Charter.Signed); err != nil {
					s.cfg.Log.Error("the registry has a charter that is not taken; the one in force stays", "error", err)
				}
			}
			if e.Kind == federation.KindPaper {
				if names[e.Name] = true; e.Deleted {
					delete(names, e.Name)
				}
			}
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Warn("the registry is not followed: the store goes on by what both sides signed last", "error", err)
		if !s.cfg.Pause(ctx, watchAgain) {
			return
		}
	}
}

// tell writes what was counted into the registry.
func (s *Store) tell(ctx context.Context) error {
	var errs []error
	for _, id := range s.ledger.Agreements() {
		s.mu.Lock()
		last, now := s.told[id], s.cfg.Now()
		s.mu.Unlock()
		is := told{at: now}
		for _, a := range s.ledger.Of(id) {
			is.stored += a.Stored
		}
		if now.Sub(last.at) < cmp.Or(s.cfg.Tell, tellEvery) && !now.Before(last.at) && !much(s.deals.of(id, ""), last.stored, is.stored) {
			continue
		}
		err := s.tellOf(ctx, id)
		if errs = append(errs, err); err == nil {
			s.mu.Lock()
			s.told[id] = is
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func much(d *deal, said, is quantity.Bytes) bool {
	return d != nil && paper.Much(d.request.Amount, said, is)
}

func (s *Store) tellOf(ctx context.Context, id string) error {
	d := s.deals.of(id, "")
	if d == nil { // it is not known here yet, or somebody keeps it back
		return nil
	}
	if d.life.Over() {
		for _, a := range s.ledger.Of(id) {
			if a.Objects > 0 { // nobody said that it is to go
				return nil
			}
		}
		s.ledger.Forget(id)
		return nil
	}
	u := &paper.Usage{ID: id, Guest: d.request.Guest, Host: d.request.Host, By: s.cfg.Site, Organization: s.cfg.Organization,
		At: d.now.UTC().Truncate(time.Second), Of: map[string]paper.Counters{}}
	p := paper.Paper{Usage: u}
	is, err := s.cfg.Registry.GetPaper(ctx, p.Name())
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return err
	}
	if is.Usage != nil { // what this store signed, it has counted, whatever its disk has
		for g, c := range is.Usage.Of {
			s.ledger.Floor(id, g, c)
		}
		if u.At.Before(is.Usage.At) {
			u.At = is.Usage.At
		}
	}
	for g, a := range s.ledger.Of(id) {
		u.Of[g] = a.Counters
		if !a.Taken.IsZero() {
			if u.Taken == nil {
				u.Taken = map[string]time.Time{}
			}
			u.Taken[g] = a.Taken
		}
	}
	if err := s.ledger.Save(); err != nil { // before anybody hears of it
		return err
	}
	s.mu.Lock()
	if e, ok := s.erased[id]; ok {
		u.Erased = &e
	}
	s.mu.Unlock()
	if is.Usage != nil && is.Usage.Erased != nil { // a process of before did it
		u.Erased = is.Usage.Erased
	}
	if err := s.cfg.Registry.PutPapers(ctx, paper.At{Paper: p, Revision: is.Revision}); err != nil {
		return err
	}
	s.deals.proved(u.At)
	return nil
}

// erase deletes everything of agreements whose host says so (lent-5).
func (s *Store) erase(ctx context.Context) error {
	var errs []error
	for _, id := range s.deals.ids() {
		d := s.deals.of(id, "")
		if d == nil || d.answer.Deleting == nil || d.answer.Deleted != nil && d.now.Sub(d.answer.Deleted.At) > 2*answerTime {
			continue
		}
		s.mu.Lock()
		_, done := s.erased[id]
		s.mu.Unlock()
		if done { // what was under way then
			errs = append(errs, s.cfg.Store.List(ctx, key(id, ""), func(i store.Info) error { return s.cfg.Store.Delete(ctx, i.Name) }))
			continue
		}
		errs = append(errs, s.eraseOf(ctx, id))
	}
	return errors.Join(errs...)
}

func (s *Store) eraseOf(ctx context.Context, id string) error {
	// The host's word counts as the registry has it now.
	is, err := s.cfg.Registry.GetPaper(ctx, paper.AnswerName(id))
	if err != nil || is.Answer == nil || is.Answer.Deleting == nil {
		return err
	}
	var gone paper.Deletion
	was, err := s.cfg.Registry.GetPaper(ctx, paper.UsageName(id, paper.Host, s.cfg.Site))
	switch {
	case err == nil && was.Usage != nil && was.Usage.Erased != nil: // a process of before did it
		s.note(id, *was.Usage.Erased)
		return nil
	case err != nil && !errors.Is(err, federation.ErrNotFound):
		return err
	}
	var all []store.Info
	if err := s.cfg.Store.List(ctx, key(id, ""), func(i store.Info) error {
		all = append(all, i)
		return nil
	}); err != nil {
		return err
	}
	for _, i := range all {
		gone.Objects++
		gone.Bytes += quantity.Bytes(i.Size)
	}
	s.mu.Lock()
	if before := s.erasing[id]; before.Objects > gone.Objects { // some of it went, in a try of before
		gone = before
	}
	s.erasing[id] = gone
	s.mu.Unlock()
	for _, i := range all {
		if err := s.cfg.Store.Delete(ctx, i.Name); err != nil {
			return err
		}
	}
	if err := s.cfg.Store.List(ctx, key(id, ""), func(i store.Info) error {
		return fmt.Errorf("object %s is there still",
			i.Name)
	}); err != nil {
		return err
	}
	s.ledger.Recount(id, map[string]ledger.Tally{})
	gone.Moment = paper.Moment{At: s.cfg.Now().UTC().Truncate(time.Second), By: s.cfg.By}
	s.note(id, gone)
	s.cfg.Log.Info("everything of an agreement is deleted", "agreement", id, "objects", gone.Objects, "bytes", int64(gone.Bytes))
	return s.tellOf(ctx, id)
}

// note remembers what was deleted of an agreement.
func (s *Store) note(id string, gone paper.Deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erased[id] = gone
}

// Stored is how many agreements have something stored, and how much that is.
func (s *Store) Stored() (agreements int, bytes quantity.Bytes) {
	for _, id := range s.ledger.Agreements() {
		is := quantity.Bytes(0)
		for _, a := range s.ledger.Of(id) {
			is += a.Stored
		}
		if bytes += is; is > 0 {
			agreements++
		}
	}
	return agreements, bytes
}
