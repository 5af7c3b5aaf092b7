// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"reflect"
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
)

// News says which volume, site or paper has changed. Exactly one of Volume, Site and Paper is set.
type News struct {
	// Volume is a UUID, and Name the volume's name if it is known.
	Volume, Name string
	// Record: the volume's desired state or a claim has changed; else only what is observed.
	Record bool
	// Mine: the volume concerns this cluster, or did before the change. See Concerns.
	Mine bool
	// Stores are the agreements in whose stores the volume is to be, or was, if that changed or its
	// home did, and those by which it has copies, or had.
	Stores []string
	Site   string
	// Paper is a paper of the exchange; one that was deleted as it was last.
	Paper *paper.Paper
}

// OnNews has f called with all news from now on. f must not wait. Call it before Watch, or when f
// may miss what was there before.
func (m *Mirror) OnNews(f func(News)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listen = append(m.listen, f)
}

func (m *Mirror) tell(all ...News) {
	m.mu.Lock()
	listen := m.listen
	m.mu.Unlock()
	for _, n := range all {
		for _, f := range listen {
			f(n)
		}
	}
}

// changed makes news of a change of the view. Until the view is synced nothing can be decided, so
// that then everything is news.
func (m *Mirror) changed(c view.Change) {
	switch {
	case c.Kind == federation.KindSynced && c.Listing:
		m.tell(m.everything()...)
	case c.Kind == federation.KindSynced || c.Kind == federation.KindCharter || !m.Synced(): // of a charter: see Again
	case c.Site != "" || c.Kind == federation.KindAlive:
		if !c.Listing && c.Kind != federation.KindSite { // the end of the list is news of all volumes
			m.tell(m.at(c.Site)...)
		}
		m.tell(News{Site: c.Site})
	case c.Kind == federation.KindPaper:
		switch {
		case c.Paper != nil:
			m.tell(News{Paper: c.Paper})
		case c.Deleted && c.Was != nil:
			m.tell(News{Paper: c.Was})
		}
	case c.Kind == federation.KindVolume:
		m.tell(m.news(c, true))
	case c.Err != nil: // the last readable value stays
	case c.Kind == federation.KindObserved:
		// Gateways report all the time, mostly the same.
		if !reflect.DeepEqual(m.Look(c.Before), m.Look(c.After)) {
			m.tell(m.news(c, false))
		}
	default:
		m.tell(m.news(c, c.Kind == federation.KindClaim))
	}
}

// news is about a change of one volume.
func (m *Mirror) news(c view.Change, record bool) News {
	n := News{Record: record, Mine: m.Concerns(c.Before) || m.Concerns(c.After)}
	for _, v := range []*view.Volume{c.Before, c.After} {
		if v != nil {
			n.Volume = v.UUID
			if name := v.Name(); name != "" {
				n.Name = name
			}
			if v.Record != nil && (record || home(c.Before) != home(c.After)) {
				n.Stores = append(n.Stores, v.Record.Stores...)
			}
			if v.Record != nil {
				n.Stores = append(n.Stores, v.Record.Agreed...)
			}
		}
	}
	if n.Volume == "" {
		n.Volume, _, _ = strings.Cut(c.Name, "/") // nothing was known of it, and nothing is
	}
	return n
}

// home is a volume's home; empty: none is known.
func home(v *view.Volume) string {
	if v == nil || v.Control == nil {
		return ""
	}
	return v.Control.Home.Gateway
}

// Again makes news of everything.
func (m *Mirror) Again() {
	if m.Synced() {
		m.tell(m.everything()...)
	}
}

// everything is about all volumes, sites and papers.
func (m *Mirror) everything() (out []News) {
	all, _ := m.Volumes()
	for _, v := range all {
		out = append(out, News{Volume: v.UUID, Name: v.Name(), Record: true, Mine: m.Concerns(v)})
	}
	for _, s := range m.Sites() {
		out = append(out, News{Site: s.Name})
	}
	for _, p := range m.Papers("") {
		out = append(out, News{Paper: &p.Paper})
	}
	return out
}

// at is about the volumes with a copy at a site that concern this cluster.
func (m *Mirror) at(site string) (out []News) {
	all, _ := m.Volumes()
	for _, v := range all {
		if m.Concerns(v) && v.IsAt(site) {
			out = append(out, News{Volume: v.UUID, Name: v.Name(), Mine: true})
		}
	}
	return out
}
