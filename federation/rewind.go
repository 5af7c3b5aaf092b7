// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
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
	// revisions. One without a value does not count, and is in the way.
	Records []Record
	Last    Reconciliation
}

// Correction is one change that a reconciliation makes.
type Correction struct {
	Key     string
	Value   []byte   // what is written; nil with Deleted, and while Branches are not decided
	Deleted bool     // the key is deleted
	Was     Revision // of the record in the registry, which must still be there; 0: there is none
	Gateway string   // whose testimony it is
	Why     string   // in words
	// Branches are those of a control record that branched. A person keeps one, see Keep.
	Branches []Control
}

// Undecided reports whether a person must say which branch to keep.
func (c Correction) Undecided() bool { return len(c.Branches) > 0 && c.Value == nil }

// Homes are the branches' names, as Keep takes them.
func (c Correction) Homes() (out []string) {
	for _, b := range c.Branches {
		name, a := fmt.Sprintf("%s@%d", b.Home.Gateway, b.Epoch), b.ancestor()
		if slices.ContainsFunc(c.Branches, func(x Control) bool {
			return x.Home.Gateway == b.Home.Gateway && x.Epoch == b.Epoch && x.ancestor() != a
		}) {
			name += fmt.Sprintf(".%d-%s", a.Change, a.Digest)
		}
		out = append(out, name)
	}
	return out
}

// Say has a person say that a gateway takes a volume over by force, which replaces what is known of
// that epoch and change (signed.Takeover). It returns his word.
type Say func(volume, gateway string, epoch, change uint64) (string, error)

// Keep decides for the branch with that home: a gateway, or one of Homes if it is home in more than
// one. Errors wrap ErrInvalid, or are those of say.
func (c *Correction) Keep(home string, say Say) (err error) {
	var found []Control
	names := c.Homes()
	for i, b := range c.Branches {
		if home == names[i] || home == b.Home.Gateway {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		return invalid("reconcile", "control", strings.TrimPrefix(c.Key, string(KindControl)+"/"),
			fmt.Sprintf("keep %q: the branches are those of %s: give one of these", home, strings.Join(names, ", ")))
	}
	next := found[0].keep(c.Branches)
	begun := &next.History[len(next.History)-1]
	if begun.Word, err = say(next.Volume, next.Home.Gateway, next.Epoch-1, next.Change-1); err != nil {
		return err
	}
	c.Value, err = Encode(next)
	return err
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
	gone, back, err := r.purged()
	if err != nil {
		return nil, nil, err
	}
	stays := map[string]bool{} // records of which it counts for nothing that somebody deleted them
	for v, p := range back {
		stays["name/"+p.Name] = true
		for _, k := range []Kind{KindVolume, KindControl, KindKeyring} {
			stays[string(k)+"/"+v] = true
		}
	}
	best, about := map[string]Testimony{}, map[string][]Testimony{}
	for _, t := range r.Testimonies {
		if t.Deleted && stays[t.Key] {
			continue
		}
		about[t.Key] = append(about[t.Key], t)
		old, ok := best[t.Key]
		newer := t.Revision > old.Revision
		switch {
		case ok && kindOf(t.Key) == KindControl && t.Deleted != old.Deleted:
			newer = t.Deleted // a volume's UUID is never used again
		case ok && said[t.Gateway].Reconciled != said[old.Gateway].Reconciled:
			newer = said[t.Gateway].Reconciled > said[old.Gateway].Reconciled
		}
		if !ok || newer {
			best[t.Key] = t
		}
	}
	byKey := map[string]Correction{}
	for k, x := range there {
		v, ok := strings.CutPrefix(k, string(KindPurged)+"/")
		if by, purged := gone[volumeOf(k, x.Value)]; purged {
			byKey[k] = Correction{Key: k, Deleted: true, Was: x.Revision, Gateway: by, Why: "is of a volume that was purged"}
		} else if _, inUse := back[v]; ok && inUse {
			byKey[k] = Correction{Key: k, Deleted: true, Was: x.Revision, Why: "is of a volume that was taken out of the trash: it stays"}
		}
	}
	for k, t := range best {
		_, purged := gone[volumeOf(k, t.Value)]
		v, ok := strings.CutPrefix(k, string(KindPurged)+"/")
		if _, inUse := back[v]; purged || ok && inUse {
			continue
		}
		// A gateway that missed a reconciliation knows less than the registry of everything but
		// control records, which have an order of their own, and volumes that it alone remembers.
		if said[t.Gateway].Reconciled == known || outlasts(t, there) {
			c, needed, err := correct(t, there[k], about[k])
			if err != nil {
				return nil, nil, err
			}
			if needed {
				byKey[k] = c // also of a name that another volume got
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		plan = append(plan, byKey[k])
	}
	return plan, r.Missing(), nil
}

// purged returns the volumes that were purged, as anybody knows, and those that were purged
// although somebody knows that they are in use, the first with who knows it.
func (r Rewind) purged() (gone map[string]string, back map[string]Purge, err error) {
	gone, back = map[string]string{}, map[string]Purge{}
	all := slices.Clone(r.Testimonies)
	for _, x := range r.Records {
		if x.Value != nil {
			all = append(all, Testimony{Key: x.Key, Value: x.Value})
		}
	}
	purges := map[string]Purge{}
	for _, t := range all {
		if v, ok := strings.CutPrefix(t.Key, string(KindPurged)+"/"); ok && !t.Deleted {
			p := purges[v]
			if err := Decode("purge", v, t.Value, &p); err != nil {
				return nil, nil, err
			}
			purges[v], gone[v] = p, t.Gateway
		}
	}
	for _, t := range all {
		kind, name, _ := strings.Cut(t.Key, "/")
		p, ok := purges[name]
		if !ok || t.Deleted {
			continue
		}
		var v *Volume
		var c *Control
		switch Kind(kind) {
		case KindVolume:
			v = new(Volume)
			err = Decode("volume", name, t.Value, v)
		case KindControl:
			c = new(Control)
			err = Decode("control", name, t.Value, c)
		}
		if err != nil {
			return nil, nil, err
		}
		if p.overruled(v, c) {
			delete(gone, name)
			back[name] = p
		}
	}
	return gone, back, nil
}

// volumeOf returns the volume that makes sense of a record: of a volume that was purged it is not
// brought back.
func volumeOf(key string, value []byte) string {
	kind, name, _ := strings.Cut(key, "/")
	switch Kind(kind) {
	case KindControl, KindVolume, KindKeyring:
		return name
	case "name":
		return string(value)
	}
	return ""
}

// outlasts reports whether a testimony counts although its gateway missed a reconciliation: it is a
// control record, or of a volume which the registry has nothing of. The name of one that it has may
// have been given up.
func outlasts(t Testimony, there map[string]Record) bool {
	switch lacks := there[t.Key].Revision == 0 && !t.Deleted; kindOf(t.Key) {
	case KindControl:
		return true
	case KindVolume, KindKeyring, KindPurged:
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

// correct compares the newest testimony of a key with what the registry has of it. All are the
// testimonies of that key.
func correct(t Testimony, there Record, all []Testimony) (c Correction, needed bool, err error) {
	c = Correction{Key: t.Key, Value: t.Value, Deleted: t.Deleted, Was: there.Revision, Gateway: t.Gateway}
	exists := there.Revision != 0
	switch k := kindOf(t.Key); {
	case exists && (k == KindSite || k == kindGateway):
		return c, false, nil // gateways register themselves anew, and people remove sites
	case t.Deleted && !exists:
		return c, false, nil
	case t.Deleted:
		c.Why = "was deleted"
		return c, true, nil
	case k == KindControl:
		return correctControl(c, there, all)
	case exists && bytes.Equal(t.Value, there.Value):
		return c, false, nil
	case !exists:
		c.Why = "is not there"
		return c, true, nil
	}
	c.Why = "is older"
	return c, true, nil
}

// correctControl finds the newest control record, or the branches.
func correctControl(c Correction, there Record, all []Testimony) (Correction, bool, error) {
	var records []Control
	var has Control
	for _, t := range all {
		known, err := controlOf(t.Key, t.Value)
		if err != nil {
			return c, false, err
		}
		records = append(records, known)
	}
	c.Why = "is not there"
	exists := there.Revision != 0 && there.Value != nil
	if exists {
		var err error
		if has, err = controlOf(c.Key, there.Value); err != nil {
			return c, false, err
		}
		records = append(records, has)
	}
	tips := Branches(records)
	if len(tips) > 1 {
		c.Value, c.Branches, c.Why = nil, tips, "has branches: "+strings.Join(inWords(tips), "; ")
		return c, true, nil
	}
	i := slices.IndexFunc(records, func(x Control) bool { return x.ancestor() == tips[0].ancestor() })
	if exists {
		if has.DescendsFrom(tips[0]) {
			return c, false, nil
		}
		c.Why = fmt.Sprintf("is of epoch %d, home %s; epoch %d, home %s is newer",
			has.Epoch, has.Home.Gateway, tips[0].Epoch, tips[0].Home.Gateway)
	}
	c.Value, c.Gateway = all[i].Value, all[i].Gateway
	return c, true, nil
}

// inWords describes branches of a control record.
func inWords(tips []Control) (out []string) {
	for _, b := range tips {
		var names []string
		for _, m := range b.Members {
			names = append(names, m.Gateway)
		}
		out = append(out, fmt.Sprintf("home %s in epoch %d with members %s", b.Home.Gateway, b.Epoch, strings.Join(names, ", ")))
	}
	return out
}

func controlOf(key string, value []byte) (c Control, err error) {
	return c, Decode("control", strings.TrimPrefix(key, string(KindControl)+"/"), value, &c)
}
