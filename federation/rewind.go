// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Notice is a gateway's statement that the registry went back, or that it heard of it (protocol-7).
type Notice struct {
	Gateway string `json:"gateway"`
	// Why is what the gateway saw; of one that only heard of it, whose notice it read.
	Why string    `json:"why"`
	At  time.Time `json:"at"`
	// Cluster and Revision are the highest that the gateway knew of the registry, without offset.
	Cluster  uint64   `json:"cluster"`
	Revision Revision `json:"revision"`
	// Reconciled is the ID of the last reconciliation that the gateway knows; IDs ascend.
	Reconciled string `json:"reconciled,omitempty"`
	// Complete: all its testimonies are written.
	Complete bool `json:"complete"`
	// Swaps counts the control records that the gateway changed since, each with this notice.
	Swaps uint64 `json:"swaps,omitempty"`
}

// Testimony is a record of a gateway's archive which the registry has otherwise, or lacks.
type Testimony struct {
	Gateway string `json:"gateway"`
	Key     string `json:"key"`
	Value   []byte `json:"value,omitempty"`
	// Revision is the record's, without offset. Revisions of gateways that know the same last
	// reconciliation compare.
	Revision Revision `json:"revision"`
	Deleted  bool     `json:"deleted,omitempty"`
}

// Reconciliation is a person's decision about a registry that went back. A later one has a later
// ID.
type Reconciliation struct {
	ID string    `json:"id"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Rewind is what the registry has about having gone back, at one revision.
type Rewind struct {
	Notices     []Notice    // by gateway; none: it did not go back, as far as anybody noticed
	Revisions   []Revision  // of the notices
	Testimonies []Testimony // by gateway and key
	// Records are all that there are of the kinds that archives keep, with the registry's own
	// revisions.
	Records []Record
	Last    Reconciliation
}

// Correction is one change that a reconciliation makes.
type Correction struct {
	Key     string
	Value   []byte   // what is written; nil with Deleted
	Deleted bool     // the key is deleted
	Was     Revision // of the record in the registry, which must still be there; 0: there is none
	Gateway string   // whose testimony it is
	Why     string   // in words
	// Conflict says why a person must decide; empty: nobody must.
	Conflict string
}

// known returns the ID of the last reconciliation that anybody knows of.
func (r Rewind) known() string {
	known := r.Last.ID
	for _, n := range r.Notices {
		known = max(known, n.Reconciled)
	}
	return known
}

// Plan returns what brings the registry forward, by key, and the registered gateways that have not
// said all yet.
func (r Rewind) Plan() (plan []Correction, missing []string, err error) {
	said, known := map[string]Notice{}, r.known()
	for _, n := range r.Notices {
		said[n.Gateway] = n
	}
	there := map[string]Record{}
	for _, x := range r.Records {
		there[x.Key] = x
	}
	best, rivals := map[string]Testimony{}, map[string][]Control{}
	for _, t := range r.Testimonies {
		if kindOf(t.Key) == KindControl && !t.Deleted {
			c, err := controlOf(t.Key, t.Value)
			if err != nil {
				return nil, nil, err
			}
			rivals[t.Key] = append(rivals[t.Key], c)
		}
		if _, ok := best[t.Key]; !ok {
			best[t.Key] = t
			continue
		}
		newer := t.Revision > best[t.Key].Revision
		if kindOf(t.Key) == KindControl {
			if newer, err = newerControl(t, best[t.Key]); err != nil {
				return nil, nil, err
			}
		} else if said[t.Gateway].Reconciled != said[best[t.Key].Gateway].Reconciled {
			newer = said[t.Gateway].Reconciled > said[best[t.Key].Gateway].Reconciled
		}
		if newer {
			best[t.Key] = t
		}
	}
	for _, k := range slices.Sorted(maps.Keys(best)) {
		// A gateway that missed a reconciliation knows less than the registry of everything but
		// control records, which have an order of their own, and volumes that it alone remembers.
		if t := best[k]; said[t.Gateway].Reconciled == known || outlasts(t, there) {
			c, needed, err := correct(t, there[k], rivals[k])
			if err != nil {
				return nil, nil, err
			}
			if needed {
				plan = append(plan, c)
			}
		}
	}
	return plan, r.Missing(), nil
}

// outlasts reports whether a testimony counts although its gateway missed a reconciliation: it is a
// control record, or of a volume which the registry has nothing of. The name of one that it has may
// have been given up.
func outlasts(t Testimony, there map[string]Record) bool {
	switch lacks := there[t.Key].Revision == 0 && !t.Deleted; kindOf(t.Key) {
	case KindControl:
		return true
	case KindVolume, KindKeyring:
		return lacks
	case "name":
		return lacks && there[string(KindVolume)+"/"+string(t.Value)].Revision == 0
	}
	return false
}

// Missing returns the gateways that are registered, here or in a testimony, and have not said all.
// A notice that does not know the last reconciliation may be one that the backup had: it does not
// count, nor does that of a gateway that missed it.
func (r Rewind) Missing() (out []string) {
	said, all, known := map[string]bool{}, map[string]bool{}, r.known()
	for _, n := range r.Notices {
		said[n.Gateway] = n.Complete && n.Reconciled == known
	}
	for _, x := range r.Records {
		if g, ok := strings.CutPrefix(x.Key, gatewayPrefix); ok {
			all[g] = true
		}
	}
	for _, t := range r.Testimonies {
		if g, ok := strings.CutPrefix(t.Key, gatewayPrefix); ok && !t.Deleted {
			all[g] = true
		}
	}
	for g := range all {
		if !said[g] {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}

// kindGateway has the index of sites by gateway, of which no event is sent.
const kindGateway Kind = "gateway"

const gatewayPrefix = string(kindGateway) + "/"

func kindOf(key string) Kind {
	kind, _, _ := strings.Cut(key, "/")
	return Kind(kind)
}

// correct compares the newest testimony of a key with what the registry has of it. Rivals are all
// that testimonies have of a control record.
func correct(t Testimony, there Record, rivals []Control) (c Correction, needed bool, err error) {
	c = Correction{Key: t.Key, Value: t.Value, Deleted: t.Deleted, Was: there.Revision, Gateway: t.Gateway}
	exists := there.Revision != 0
	switch k := kindOf(t.Key); {
	case exists && (k == KindSite || k == kindGateway):
		return c, false, nil // gateways register themselves anew, and people remove sites
	case t.Deleted && !exists, !t.Deleted && exists && bytes.Equal(t.Value, there.Value):
		return c, false, nil
	case t.Deleted:
		c.Why = "was deleted"
		return c, true, nil
	case k == KindControl:
		return correctControl(c, t, there, rivals)
	case !exists:
		c.Why = "is not there"
		return c, true, nil
	}
	c.Why = "is older"
	return c, true, nil
}

func correctControl(c Correction, t Testimony, there Record, rivals []Control) (Correction, bool, error) {
	kept, err := controlOf(t.Key, t.Value)
	if err != nil {
		return c, false, err
	}
	needed := true
	c.Why = "is not there"
	if there.Revision != 0 {
		has, err := controlOf(t.Key, there.Value)
		if err != nil {
			return c, false, err
		}
		c.Why = fmt.Sprintf("is of epoch %d, home %s; epoch %d, home %s is newer",
			has.Epoch, has.Home.Gateway, kept.Epoch, kept.Home.Gateway)
		needed = CompareControl(has, kept) < 0
		rivals = append(slices.Clone(rivals), has)
	}
	for _, rival := range rivals {
		if kept.Epoch != rival.Epoch || kept.Home == rival.Home {
			continue
		}
		kept.outvote(rival)
		c.Conflict = fmt.Sprintf("epoch %d has two homes: %s as gateway %s knows, and %s, which somebody wrote after the registry "+
			"went back; if the first is kept, these copies begin anew: %s",
			kept.Epoch, kept.Home.Gateway, t.Gateway, rival.Home.Gateway, gateways(kept.Void))
	}
	if c.Conflict != "" {
		c.Value, err = Encode(kept)
	}
	return c, c.Conflict != "" || needed, err
}

func gateways(members []Member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Gateway)
	}
	return strings.Join(names, ", ")
}

// outvote makes c the record that replaces another of its epoch with another home. Logs that may
// have followed that one begin anew, and are no members until then.
func (c *Control) outvote(other Control) {
	c.Change = max(c.Change, other.Change) + 1
	for _, m := range other.Members {
		if m == c.Home || slices.Contains(c.Void, m) {
			continue
		}
		c.Void = append(c.Void, m)
		c.Members = slices.DeleteFunc(c.Members, func(x Member) bool { return x == m })
	}
}

// CompareControl returns a negative number if a is older than b, by epoch and then by change.
func CompareControl(a, b Control) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Change, b.Change))
}

func newerControl(t, than Testimony) (bool, error) {
	if t.Deleted || than.Deleted {
		return t.Deleted, nil // a volume's UUID is never used again
	}
	a, err := controlOf(t.Key, t.Value)
	if err != nil {
		return false, err
	}
	b, err := controlOf(than.Key, than.Value)
	return CompareControl(b, a) < 0, err
}

func controlOf(key string, value []byte) (c Control, err error) {
	return c, Decode("control", strings.TrimPrefix(key, string(KindControl)+"/"), value, &c)
}
