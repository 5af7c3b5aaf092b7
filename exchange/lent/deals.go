// SPDX-License-Identifier: Apache-2.0

package lent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/exchange/ledger"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// deals are the agreements of a store, as the registry said last. They are kept on its disk. Their
// methods may be called from many goroutines.
type deals struct {
	organization, site string
	path               string
	clock              func() time.Time

	mu     sync.Mutex
	papers map[string]paper.Paper // by name
	newest time.Time              // that others signed, or a gatekeeper took (lent-4)
	dirty  bool
}

// kept is what is on disk.
type kept struct {
	Version int           `json:"version"`
	Newest  time.Time     `json:"newest"`
	Papers  []paper.Paper `json:"papers"`
}

func openDeals(path, organization, site string, clock func() time.Time) (*deals, error) {
	d := &deals{organization: organization, site: site, path: path, clock: clock, papers: map[string]paper.Paper{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil || k.Version != 1 {
		return nil, fmt.Errorf("%s cannot be read (%v, version %d): delete it, and start while the registry answers", path, err, k.Version)
	}
	d.newest = k.Newest
	for _, p := range k.Papers {
		d.papers[p.Name()] = p
	}
	return d, nil
}

// mine reports whether a paper is about room at this store.
func (d *deals) mine(p paper.Paper) bool {
	_, host := p.Parties()
	if host != d.organization {
		return false
	}
	return p.Request == nil || p.Request.Kind == paper.KindStore && p.Request.Site == d.site
}

// take takes in what the registry has of a paper; nil: it is gone. It returns the agreement that it
// is about, "" for none of this store.
func (d *deals) take(name string, p *paper.Paper) (agreement string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	form, rest, _ := strings.Cut(name, "/")
	switch paper.Form(form) {
	case paper.FormRequest, paper.FormAnswer, paper.FormRoom:
	default:
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	is, known := d.papers[name]
	switch {
	case p == nil && (!known || !d.over(id)): // somebody may keep it back, or have deleted it past the gatekeepers
		return ""
	case p == nil:
		delete(d.papers, name)
	case !d.mine(*p):
		return ""
	case known && paper.Follows(is, *p) != nil: // an earlier one, or another
		return ""
	default:
		d.papers[name] = *p
		d.saw(*p)
	}
	d.dirty = true
	return id
}

// saw notes the times that a paper says. d.mu is held.
func (d *deals) saw(p paper.Paper) {
	note := func(m *paper.Moment) {
		if m != nil && m.At.Add(-paper.Slack).After(d.newest) { // a gatekeeper's clock may be behind as much
			d.newest = m.At.Add(-paper.Slack)
		}
	}
	if r := p.Request; r != nil {
		note(&r.Made)
		note(r.Noticed)
		note(r.Drained)
	}
	if a := p.Answer; a != nil {
		if a.Accepted != nil {
			note(&a.Accepted.Moment)
		}
		note(a.Noticed)
		note(a.Deleting)
	}
}

// over reports whether nothing holds of an agreement any more, by what is known. d.mu is held.
func (d *deals) over(id string) bool {
	r := d.papers[paper.RequestName(id)].Request
	return r == nil || r.Life(d.papers[paper.AnswerName(id)].Answer, d.time()).Over()
}

// only forgets papers that the registry does not have, of agreements that are over.
func (d *deals) only(names map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.papers {
		_, rest, _ := strings.Cut(name, "/")
		if id, _, _ := strings.Cut(rest, "/"); !names[name] && d.over(id) {
			delete(d.papers, name)
			d.dirty = true
		}
	}
}

// time is the store's (lent-4). d.mu is held.
func (d *deals) time() time.Time {
	now := d.clock()
	if now.Before(d.newest) {
		return d.newest
	}
	return now
}

// proved notes a time that a gatekeeper took: it is not later than now.
func (d *deals) proved(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at = at.Add(-paper.Slack); at.After(d.newest) {
		d.newest, d.dirty = at, true
	}
}

// deal is how an agreement is for a gateway.
type deal struct {
	request paper.Request
	answer  *paper.Answer
	life    paper.Life
	room    quantity.Bytes // of the gateway
	roomed  bool           // the guest says how much that is
	now     time.Time
}

// of returns an agreement of this store; nil: there is none.
func (d *deals) of(id, gateway string) *deal {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.papers[paper.RequestName(id)].Request
	if r == nil {
		return nil
	}
	out := &deal{request: *r, answer: d.papers[paper.AnswerName(id)].Answer, now: d.time()}
	if !r.Agrees(out.answer) {
		return nil
	}
	out.life = r.Life(out.answer, out.now)
	if room := d.papers[paper.RoomName(id, gateway)].Room; room != nil {
		out.room, out.roomed = room.Bytes, true
	}
	return out
}

// ids are all agreements of which something is known.
func (d *deals) ids() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.papers {
		if p.Request != nil {
			out = append(out, strings.TrimPrefix(name, string(paper.FormRequest)+"/"))
		}
	}
	slices.Sort(out)
	return out
}

// save keeps what is known, if something changed.
func (d *deals) save() error {
	d.mu.Lock()
	if !d.dirty {
		d.mu.Unlock()
		return nil
	}
	k := kept{Version: 1, Newest: d.newest}
	for _, name := range slices.Sorted(maps.Keys(d.papers)) {
		k.Papers = append(k.Papers, d.papers[name])
	}
	d.dirty = false
	d.mu.Unlock()
	text, err := json.Marshal(k)
	if err == nil {
		err = ledger.Replace(d.path, text)
	}
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dirty = true
	}
	return err
}

// event takes in an event of the registry.
func (d *deals) event(e federation.Event) (agreement string) {
	if e.Kind != federation.KindPaper || e.Err != nil {
		return ""
	}
	return d.take(e.Name, e.Paper)
}
