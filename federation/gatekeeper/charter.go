// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// kindCharter is a key without a name: there is one.
const kindCharter = string(federation.KindCharter)

// charter is gatekeeper-10.
func (q *request) charter(w write) error {
	if q.who.Part != pki.PartAdministrator || w.deletes {
		return q.deny(w.key, "an administrator replaces the charter, and nobody deletes it")
	}
	next, err := after[federation.Charter](q, w)
	if err != nil {
		return err
	}
	prev, err := before[federation.Charter](q, w.key)
	if err != nil { // it may be forged, and then says nothing
		prev = nil
	}
	if err := q.seal.CheckCharter(prev, *next); err != nil {
		return q.deny(w.key, "%v", err)
	}
	return nil
}

// adopt takes a charter that etcd has. One that was forged, or is an old one, is told and changes
// nothing.
func (g *Gatekeeper) adopt(key string, value []byte, at int64) {
	if kindOf(key) == kindNotice {
		g.cfg.Log.Warn("a gateway says that the registry went back: gateways are shown everything until it is reconciled", "record", key)
	}
	if key != kindCharter {
		return
	}
	c, err := decode[federation.Charter](kindCharter, value)
	news := false
	if err == nil && c != nil {
		news, err = g.cfg.Credentials.Adopt(c.Signed)
	}
	switch {
	case err != nil:
		g.cfg.Log.Error("the registry has a charter that is not taken; the one in force stays", "error", err)
	case news:
		g.cfg.Log.Info("a charter is in force", "serial", c.Serial)
	}
	is, _ := g.cfg.Credentials.Charter()
	g.shown.Hide(is.Conceals, at)
}
