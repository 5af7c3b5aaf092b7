// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

const prefix = "/weir/demo/"

// value is a record with his signature: whoever has a certificate can sign what he likes.
func (o *one) value(key string, record any) []byte {
	o.rig.Helper()
	value, err := federation.Encode(record)
	o.rig.ok(err)
	value, err = signed.New(o.creds, nil, nil).Sign(key, value, o.rig.plainly)
	o.rig.ok(err)
	return value
}

// put writes keys and values past everything that the programs check themselves.
func (o *one) put(kvs ...any) error {
	var ops []clientv3.Op
	for i := 0; i < len(kvs); i += 2 {
		switch v := kvs[i+1].(type) {
		case nil:
			ops = append(ops, clientv3.OpDelete(prefix+kvs[i].(string)))
		case []byte:
			ops = append(ops, clientv3.OpPut(prefix+kvs[i].(string), string(v)))
		case string:
			ops = append(ops, clientv3.OpPut(prefix+kvs[i].(string), v))
		default:
			ops = append(ops, clientv3.OpPut(prefix+kvs[i].(string), string(o.value(kvs[i].(string), v))))
		}
	}
	ctx, cancel := context.WithTimeout(o.rig.Context(), 10*time.Second) // guards against a hang only
	defer cancel()
	_, err := o.raw.Txn(ctx).Then(ops...).Commit()
	if status.Code(err) == codes.PermissionDenied {
		return fmt.Errorf("%w: %w", federation.ErrAccess, err)
	}
	return err
}

// Each of these is refused, logged and counted, and nothing is changed by it.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()

	// The world that is attacked: A's volume v1 at a and b, with home a and member b, granted to
	// b's namespace lab to read; and A's deleted volume v3.
	v1 := volumeOf("v1", "a.one", "A", "a", "b")
	v1.OwnerSite, v1.OwnerCluster = "a", "uid-a"
	v1.Grants = []federation.Grant{{Site: "b", Namespace: "lab", Access: federation.ReadOnly}}
	must[federation.Revision](w)(w.oa.CreateVolume(ctx, v1, ringOf("v1", "a")))
	v3 := volumeOf("v3", "three", "A", "a", "b")
	rev3 := must[federation.Revision](w)(w.pa.CreateVolume(ctx, v3, ringOf("v3", "a")))
	v3.Deleted, v3.DeletedAt, v3.PurgeAfter = true, w.clock(), w.clock().Add(time.Hour)
	must[federation.Revision](w)(w.pa.UpdateVolume(ctx, rev3, v3))
	ctl := federation.Control{Volume: "v1", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	rev := must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", 0, ctl))
	ctl.Members = append(ctl.Members, member("b"))
	must[federation.Revision](w)(w.ga.SwapControl(ctx, "v1", rev, ctl))
	now, _, err := w.ga.GetControl(ctx, "v1")
	w.ok(err)
	w.ok(w.cb.PutAttachment(ctx, federation.Attachment{Volume: "v1", Site: "b", Node: "n", Access: federation.ReadOnly}))
	w.ok(w.ob.PutClaim(ctx, federation.Claim{Volume: "v1", Site: "b", Namespace: "lab", Name: "x", Kind: federation.ClaimGeoVolume,
		Access: federation.ReadOnly}))
	beat := must[federation.Heartbeat](w)(w.ga.Heartbeat(ctx, federation.Alive{Gateway: "ga", Site: "a", Incarnation: "i"}, 30*time.Second))
	defer func() { w.ok(beat.Stop(context.Background())) }()

	swap := func(change func(*federation.Control)) federation.Control {
		next := now.Clone()
		change(&next)
		next.Succeed(&now)
		return next
	}
	epoch := func(home string, began federation.EpochStart, members ...string) federation.Control {
		return swap(func(c *federation.Control) {
			c.Epoch, c.Home, c.Members = 2, member(home), nil
			for _, m := range members {
				c.Members = append(c.Members, member(m))
			}
			c.Begin(began)
		})
	}
	epoch2 := func(home string, forced bool, members ...string) federation.Control {
		return epoch(home, federation.EpochStart{Epoch: 2, Forced: forced}, members...)
	}
	said := signed.Takeover{Volume: "v1", Gateway: "gb", Epoch: 1, Change: now.Change}
	byForce := func(home, word string) federation.Control {
		return epoch(home, federation.EpochStart{Epoch: 2, Forced: true, Word: word}, home)
	}
	before := said
	before.Change--
	stolen := v1
	stolen.Owner = "B"
	placed := v1
	placed.Sites, placed.Generation = []string{"a", "b", "c"}, 2
	ring, _, err := w.ga.GetKeyring(ctx, "v1")
	w.ok(err)
	wrapped := func(generation uint64, site, key string) federation.Keyring {
		k := federation.Keyring{Volume: "v1", Generation: generation, Wrapped: map[string][]byte{"a": ring.Wrapped["a"]}}
		k.Wrapped[site] = []byte(key)
		return k
	}
	site := func(name, organization string, change func(*federation.Site)) federation.Site {
		s := siteOf(name, organization)
		s.Cluster, s.Region = "uid-"+name, "r"+name
		change(&s)
		return s
	}
	claim := func(site, namespace string, access federation.Access) federation.Claim {
		return federation.Claim{Volume: "v1", Site: site, Namespace: namespace, Name: "x", Kind: federation.ClaimGeoVolume, Access: access}
	}
	attachment := func(site string, access federation.Access) federation.Attachment {
		return federation.Attachment{Volume: "v1", Site: site, Node: "m", Access: access}
	}
	admission := func(site, node string, access federation.Access) federation.Admission {
		return federation.Admission{Volume: "v1", Site: site, Client: "10.0.0.9", Access: access, Node: node}
	}
	purge := federation.Purge{Volume: "v3", Name: "three", At: w.clock(), Size: v3.Spec.Size, Sites: v3.Sites, Generation: v3.Generation}
	due := volumeOf("v4", "four", "A", "a") // deleted, and its time is over
	rev4 := must[federation.Revision](w)(w.pa.CreateVolume(ctx, due, ringOf("v4", "a")))
	due.Deleted, due.DeletedAt, due.PurgeAfter = true, w.clock().Add(-time.Hour), w.clock().Add(-time.Minute)
	must[federation.Revision](w)(w.pa.UpdateVolume(ctx, rev4, due))
	four := federation.Control{Volume: "v4", Epoch: 1, Home: member("a"), Members: []federation.Member{member("a")},
		History: []federation.EpochStart{{Epoch: 1}}}
	four.Succeed(nil)
	value4 := must[[]byte](w)(federation.Encode(four)) // from before it was deleted
	_, err = w.plain.Put(ctx, prefix+"control/v4", string(value4))
	w.ok(err)
	goes := func(p federation.Purge) []any {
		return []any{"purged/v4", p, "volume/v4", nil, "name/four", nil, "keyring/v4", nil, "control/v4", nil}
	}
	gone4 := federation.Purge{Volume: "v4", Name: "four", At: w.clock(), Size: due.Spec.Size, Sites: due.Sites, Generation: due.Generation,
		Change: 1, Pending: []string{"ga"}}
	with := func(change func(*federation.Purge)) federation.Purge { p := gone4; change(&p); return p }
	impostor := w.as("B", "a", pki.PartGateway, "ga") // B's authority names A's site
	impostorOperator := w.as("B", "a", pki.PartOperator, "a-operator")
	never := w.as("C", "c", pki.PartGateway, "gc2") // a gateway that did not register
	member := w.as("A", "a", pki.PartRegistry, "registry-a")

	attacks := []struct {
		name string
		by   *one
		kvs  []any
	}{
		// Who has no business with the registry.
		{"a node's certificate writes a volume's record", w.node, []any{"volume/v1", stolen}},
		{"a certificate without a part registers its gateway", w.old, []any{"site/a", siteOf("a", "A"), "gateway/ga", "a"}},
		{"a registry member's certificate, past etcd's own port", member, []any{"volume/v1", stolen}},

		// A volume's record.
		{"another organization's person takes a volume", w.pb, []any{"volume/v1", stolen}},
		{"another organization's operator places a volume", w.ob, []any{"volume/v1", placed}},
		{"a gateway that has a copy places a volume", w.gb, []any{"volume/v1", placed}},
		{"the owner's own gateway places a volume", w.ga, []any{"volume/v1", placed}},
		{"a policy places copies at a site that lends nothing to its organization", w.ob, []any{"volume/v7", func() federation.Volume {
			v := volumeOf("v7", "seven", "B", "b", "c")
			v.OwnerSite, v.OwnerCluster = "b", "uid-b"
			return v
		}(), "name/seven", "v7", "keyring/v7", ringOf("v7", "b")}},
		{"copies at a site that nobody knows", w.oa, []any{"volume/v1", func() federation.Volume {
			v := v1
			v.Sites, v.Generation = []string{"a", "b", "x"}, 2
			return v
		}()}},
		{"an impostor of the owner's site", impostorOperator, []any{"volume/v1", placed}},
		{"the owner's operator gives a volume away", w.oa, []any{"volume/v1", stolen}},
		{"a record of before is written again", w.oa, []any{"volume/v1",
			func() federation.Volume { v := v1; v.Generation = 0; return v }()}},
		{"a volume is made in another's name", w.pb, []any{"volume/v7", volumeOf("v7", "seven", "A", "a"), "name/seven", "v7", "keyring/v7",
			ringOf("v7", "b")}},
		{"an operator makes a volume of another site", w.ob, []any{"volume/v7", func() federation.Volume {
			v := volumeOf("v7", "seven", "B", "b")
			v.OwnerSite, v.OwnerCluster = "a", "uid-a"
			return v
		}(), "name/seven", "v7", "keyring/v7", ringOf("v7", "b")}},
		{"a volume is made with a name that is taken", w.pb, []any{"volume/v7", volumeOf("v7", "a.one", "B", "b"), "name/a.one", "v7",
			"keyring/v7", ringOf("v7", "b")}},
		{"a volume is made without a keyring", w.pb, []any{"volume/v7", volumeOf("v7", "seven", "B", "b"), "name/seven", "v7"}},
		{"a name is bent to another volume", w.pb, []any{"name/a.one", "v3"}},
		{"a volume's record is deleted", w.oa, []any{"volume/v1", nil}},
		{"a name is deleted", w.pa, []any{"name/a.one", nil}},

		// A control record.
		{"a site without a copy takes a volume over", w.gc, []any{"control/v1", epoch2("c", false, "c")}},
		{"a site without a copy takes a volume over by force", w.gc, []any{"control/v1", epoch2("c", true, "c")}},
		{"a member takes a volume over by force without a person's word", w.gb, []any{"control/v1", byForce("b", "")}},
		{"by the word of its own organization's person", w.gb, []any{"control/v1", byForce("b", w.pb.says(said))}},
		{"by an administrator's word", w.gb, []any{"control/v1", byForce("b", w.admin.says(said))}},
		{"by the word of the owner's gateway", w.gb, []any{"control/v1", byForce("b", w.ga.says(said))}},
		{"by the owner's word about another gateway", w.ga, []any{"control/v1", byForce("a", w.pa.says(said))}},
		{"by the owner's word of before", w.gb, []any{"control/v1", byForce("b", w.pa.says(before))}},
		{"a member makes another the home", w.gb, []any{"control/v1", epoch2("a", false, "a", "b")}},
		{"a member takes a stranger in at takeover", w.gb, []any{"control/v1", epoch2("b", false, "b", "c")}},
		{"a member that is not home changes members", w.gb, []any{"control/v1", swap(func(c *federation.Control) {
			c.Members = c.Members[:1]
		})}},
		{"the home takes in a site that has no copy", w.ga, []any{"control/v1", swap(func(c *federation.Control) {
			c.Members = append(c.Members, federation.Member{Gateway: "gc", Site: "c", Incarnation: "i"})
		})}},
		{"the home takes in a gateway that nobody registered", w.ga, []any{"control/v1", swap(func(c *federation.Control) {
			c.Members = append(c.Members, federation.Member{Gateway: "gx", Site: "b", Incarnation: "i"})
		})}},
		{"an epoch leaves numbers out", w.gb, []any{"control/v1", swap(func(c *federation.Control) {
			c.Epoch, c.Home, c.Members = 1<<40, c.Members[1], c.Members[1:]
			c.Begin(federation.EpochStart{Epoch: 1 << 40})
		})}},
		{"a number goes back", w.ga, []any{"control/v1", func() federation.Control { c := now.Clone(); c.Change = 1; return c }()}},
		{"a record of before is swapped in", w.ga, []any{"control/v1", func() federation.Control {
			c := now.Clone()
			c.Members, c.Trail, c.Change = c.Members[:1], nil, 1
			return c
		}()}},
		{"an operator swaps", w.oa, []any{"control/v1", epoch2("a", false, "a", "b")}},
		{"an impostor of the home's site swaps", impostor, []any{"control/v1",
			swap(func(c *federation.Control) { c.Members = c.Members[:1] })}},
		{"a control record is deleted", w.ga, []any{"control/v1", nil}},
		{"a second site begins a volume", w.gb, []any{"control/v3", func() federation.Control {
			c := federation.Control{Volume: "v3", Epoch: 1, Home: now.Members[1], Members: now.Members[1:],
				History: []federation.EpochStart{{Epoch: 1}}}
			c.Succeed(nil)
			return c
		}()}},

		// A keyring.
		{"a site wraps a key of its own for itself", w.gb, []any{"keyring/v1", wrapped(2, "b", "mine")}},
		{"the home replaces a wrapped key", w.ga, []any{"keyring/v1", wrapped(2, "a", "mine")}},
		{"another's person replaces a keyring", w.pb, []any{"keyring/v1", ringOf("v1", "b")}},
		{"a keyring is made before its volume", w.pb, []any{"keyring/v7", ringOf("v7", "b")}},
		{"a keyring is deleted", w.pa, []any{"keyring/v1", nil}},
		{"a keyring of before is written again", w.oa, []any{"keyring/v1", ring}},

		// A site's records.
		{"a gateway rewrites another site", w.gb, []any{"site/a", site("a", "A", func(s *federation.Site) { s.WrapKey = []byte("mine") })}},
		{"a site changes its organization", w.gb, []any{"site/b", site("b", "A", func(*federation.Site) {})}},
		{"a gateway says which cluster it is", w.gb, []any{"site/b", site("b", "B", func(s *federation.Site) { s.Cluster = "other" })}},
		{"a gateway puts labels on its site", w.gb, []any{"site/b", site("b", "B", func(s *federation.Site) {
			s.Labels = map[string]string{"jurisdiction": "eu"}
		})}},
		{"a gateway registers another gateway of its site", w.gb, []any{"site/b", site("b", "B", func(s *federation.Site) {
			s.Gateways = append(s.Gateways, federation.Gateway{Name: "gx", Addr: "127.0.0.1:1"})
		}), "gateway/gx", "b"}},
		{"an operator moves a gateway's address", w.ob, []any{"site/b", site("b", "B", func(s *federation.Site) {
			s.Gateways[0].Addr = "127.0.0.1:1"
		})}},
		{"a gateway's name is taken from another site", w.gb, []any{"site/b", site("b", "B", func(s *federation.Site) {
			s.Gateways = append(s.Gateways, federation.Gateway{Name: "ga", Addr: "127.0.0.1:1"})
		}), "gateway/ga", "b"}},
		{"another's person removes a site", w.pb, []any{"site/a", nil, "gateway/ga", nil}},
		{"another's person removes a gateway's name", w.pb, []any{"gateway/ga", nil}},
		{"another's person declares a site lost", w.pb, []any{"lost/a", federation.Lost{Site: "a", By: w.pb.id.String()}}},
		{"a site is declared lost in another's name", w.pa, []any{"lost/a", federation.Lost{Site: "a", By: "somebody"}}},
		{"another gateway's observed state", w.gb, []any{"observed/v1/ga", federation.Observed{Volume: "v1", Gateway: "ga"}}},
		{"observed state of a gateway that is not registered", never, []any{"observed/v1/gc2", federation.Observed{Volume: "v1",
			Gateway: "gc2"}}},
		{"another gateway's notice", w.gb, []any{"rewound/ga", federation.Notice{Gateway: "ga", Why: "x"}}},
		{"another gateway's testimony", w.gb, []any{"testimony/ga/volume/v1", federation.Testimony{Gateway: "ga", Key: "volume/v1"}}},
		{"a notice that nobody can read", w.gc, []any{"rewound/gc", "junk"}},
		{"a notice in another's name", w.gc, []any{"rewound/gc", federation.Notice{Gateway: "ga", Why: "x", Complete: true}}},
		{"a notice that knows of a later reconciliation", w.gc, []any{"rewound/gc", federation.Notice{Gateway: "gc", Why: "x",
			Reconciled: "zzz"}}},
		{"a testimony without a notice", w.gc, []any{"testimony/gc/volume/v1", federation.Testimony{Gateway: "gc", Key: "volume/v1"}}},
		{"a testimony about another record", w.gc, []any{"rewound/gc", federation.Notice{Gateway: "gc", Why: "x"}, "testimony/gc/volume/v1",
			federation.Testimony{Gateway: "gc", Key: "volume/v3"}}},
		{"observed state of a volume that there is not", w.gc, []any{"observed/nothing/gc", federation.Observed{Volume: "nothing",
			Gateway: "gc"}}},
		{"a record that fills the registry", w.gc, []any{"observed/v1/gc", federation.Observed{Volume: "v1", Gateway: "gc",
			Message: strings.Repeat("x", 300<<10)}}},
		{"another gateway's canary", w.gb, []any{"canary/ga", "{}"}},
		{"a heartbeat without a lease", w.gb, []any{"alive/gb", federation.Alive{Gateway: "gb", Site: "b"}}},

		// Who may use a volume.
		{"a claim beyond the grant", w.ob, []any{"claim/v1/b/lab/x", claim("b", "lab", federation.ReadWrite)}},
		{"a claim of a namespace without a grant", w.ob, []any{"claim/v1/b/other/x", claim("b", "other", federation.ReadOnly)}},
		{"a claim in another site's name", w.ob, []any{"claim/v1/a/lab/x", claim("a", "lab", federation.ReadOnly)}},
		{"another site's claim is deleted", w.as("C", "c", pki.PartOperator, "c-operator"), []any{"claim/v1/b/lab/x", nil}},
		{"an attachment beyond the grant", w.cb, []any{"attachment/b/v1/m", attachment("b", federation.ReadWrite)}},
		{"an attachment of a site without a grant", w.as("C", "c", pki.PartController, "c-csi"), []any{"attachment/c/v1/m",
			attachment("c", federation.ReadOnly)}},
		{"a gateway attaches a node", w.gb, []any{"attachment/b/v1/m", attachment("b", federation.ReadOnly)}},
		{"an admission beyond the grant", w.gb, []any{"admission/b/v1/10.0.0.9", admission("b", "n", federation.ReadWrite)}},
		{"an admission of a node that is not attached", w.gb, []any{"admission/b/v1/10.0.0.9", admission("b", "m", federation.ReadOnly)}},
		{"an importer's person admits beyond the grant", w.pb, []any{"admission/b/v1/10.0.0.9", admission("b", "", federation.ReadWrite)}},
		{"an importer's person admits an address himself", w.pb, []any{"admission/b/v1/10.0.0.9", admission("b", "", federation.ReadOnly)}},
		{"a gateway admits a client without a node", w.gb, []any{"admission/b/v1/10.0.0.9", admission("b", "", federation.ReadOnly)}},
		{"an admission at another site", w.gb, []any{"admission/a/v1/10.0.0.9", admission("a", "n", federation.ReadOnly)}},
		{"an admission that says another thing than its key", w.pa, []any{"admission/b/v1/10.0.0.8", admission("b", "",
			federation.ReadOnly)}},

		// Purges, and the end of a reconciliation.
		{"a purge before its time", w.gc, []any{"purged/v3", purge, "volume/v3", nil, "name/three", nil, "keyring/v3", nil}},
		{"a purge of a volume in use", w.gc, []any{"purged/v1", federation.Purge{Volume: "v1", Name: "a.one", At: w.clock()},
			"volume/v1", nil}},
		{"a purge leaves the name and the key", w.gc, []any{"purged/v4", gone4, "volume/v4", nil, "control/v4", nil}},
		{"a purge leaves the control record", w.gc, []any{"purged/v4", gone4, "volume/v4", nil, "name/four", nil, "keyring/v4", nil}},
		{"a purge of long ago, to be forgotten at once", w.gc, goes(with(func(p *federation.Purge) { p.At = time.Unix(1, 0) }))},
		{"a purge after which a member keeps its copy", w.gc, goes(with(func(p *federation.Purge) { p.Pending = nil }))},
		{"a deleted volume's UUID is taken again", w.pb, []any{"volume/v5", volumeOf("v5", "five", "B", "b"), "name/five", "v5",
			"keyring/v5",
			ringOf("v5", "b")}},
		{"a mark of a purge that never was", w.gc, []any{"purged/v9", federation.Purge{Volume: "v9", Name: "nine", At: w.clock()}}},
		{"a person ends a reconciliation", w.pa, []any{"reconciled", federation.Reconciliation{ID: "9", By: w.pa.id.String()}}},
		{"an administrator writes a volume, when nothing went back", w.admin, []any{"control/v1", epoch2("a", true, "a")}},
		{"an administrator takes a volume", w.admin, []any{"volume/v1", stolen}},
		{"an administrator replaces a keyring", w.admin, []any{"keyring/v1", wrapped(2, "c", "mine")}},
		{"an administrator admits", w.admin, []any{"admission/b/v1/10.0.0.9", admission("b", "", federation.ReadOnly)}},
		{"an administrator reconciles in another's name", w.admin, []any{"reconciled", federation.Reconciliation{ID: "9", By: "somebody"}}},
		{"a kind that does not exist", w.admin, []any{"secret/x", "y"}},
		{"a good write takes a bad one along", w.gb, []any{"observed/v1/gb", federation.Observed{Volume: "v1", Gateway: "gb"}, "volume/v1",
			stolen}},
		{"keys that are cut off", w.gb, []any{"volume", "x"}},
		{"keys with parts too few", w.gb, []any{"attachment/b/v1", "x"}},
		{"a value that is no record", w.gb, []any{"observed/v1/gc", "x"}},
		{"one key twice", w.gb, []any{"observed/v1/gb", federation.Observed{Volume: "v1", Gateway: "gb"}, "observed/v1/gb", nil}},
	}
	five := four
	five.Volume = "v5"
	value5 := must[[]byte](w)(federation.Encode(five)) // of a volume whose records are gone otherwise
	_, err = w.plain.Put(ctx, prefix+"control/v5", string(value5))
	w.ok(err)
	head, err := w.admin.Head(ctx)
	w.ok(err)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			before := w.meter.all()
			err := a.by.put(a.kvs...)
			if a.name == "one key twice" && err != nil && !errors.Is(err, federation.ErrAccess) {
				return // etcd's client, or etcd, says so first
			}
			if !errors.Is(err, federation.ErrAccess) {
				t.Fatalf("it is not refused: %v", err)
			}
			if n := w.meter.all() - before; n != 1 {
				t.Errorf("it is counted %d times", n)
			}
			if said := w.log.last(); !strings.Contains(said, "audit=refused") || !strings.Contains(said, a.by.id.String()) {
				t.Errorf("it is logged as %s", said)
			}
		})
	}
	if at, err := w.admin.Head(ctx); err != nil || at.Revision != head.Revision {
		t.Errorf("something was changed: revision %d, before %d, %v", at.Revision, head.Revision, err)
	}
	t.Logf("%d attacks were refused", len(attacks))
}

// What is not a change of records is refused too.
func TestOtherAttacks(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	lease, err := w.ga.raw.Grant(ctx, 30)
	w.ok(err)
	value := must[[]byte](w)(federation.Encode(federation.Alive{Gateway: "ga", Site: "a", Incarnation: "i"}))
	_, err = w.ga.raw.Put(ctx, prefix+"alive/ga", string(value), clientv3.WithLease(lease.ID))
	w.ok(err)
	for name, try := range map[string]func() error{
		"a node reads": func() error { _, err := w.node.raw.Get(ctx, prefix+"volume/v1"); return err },
		"a node watches": func() error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // guards against a hang only
			defer cancel()
			for r := range w.node.raw.Watch(ctx, prefix, clientv3.WithPrefix()) {
				if r.Err() != nil {
					return r.Err()
				}
			}
			return errors.New("it is shown what there is")
		},
		"a read beyond the federation":    func() error { _, err := w.pa.raw.Get(ctx, "/weir/other/volume/v1"); return err },
		"a read of everything":            func() error { _, err := w.pa.raw.Get(ctx, "", clientv3.WithPrefix()); return err },
		"a read up to another federation": func() error { _, err := w.pa.raw.Get(ctx, prefix, clientv3.WithRange("/x")); return err },
		"a write beyond the federation": func() error {
			_, err := w.ga.raw.Txn(ctx).Then(clientv3.OpPut("/weir/other/volume/v1", "x")).Commit()
			return err
		},
		"a condition beyond the federation": func() error {
			_, err := w.ga.raw.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/secret"), "=",
				0)).Then(clientv3.OpGet(prefix + "x")).Commit()
			return err
		},
		"a plain write": func() error { _, err := w.pa.raw.Put(ctx, prefix+"volume/v1", "x"); return err },
		"another gateway's beat": func() error {
			_, err := w.gb.raw.Put(ctx, prefix+"alive/ga", string(value), clientv3.WithLease(lease.ID))
			return err
		},
		"a key that is cut off": func() error {
			_, err := w.ga.raw.Put(ctx, prefix+"alive", "{}", clientv3.WithLease(lease.ID))
			return err
		},
		"a heartbeat is bound to another's lease": func() error {
			_, err := w.gb.raw.Put(ctx, prefix+"alive/gb", strings.ReplaceAll(strings.ReplaceAll(string(value), `"ga"`, `"gb"`),
				`"a"`, `"b"`),
				clientv3.WithLease(lease.ID))
			return err
		},
		"another gateway's lease":   func() error { _, err := w.gb.raw.Revoke(ctx, lease.ID); return err },
		"another lease is kept":     func() error { _, err := w.gb.raw.KeepAliveOnce(ctx, lease.ID); return err },
		"a person takes a lease":    func() error { _, err := w.pa.raw.Grant(ctx, 30); return err },
		"a person takes a snapshot": func() error { r, err := w.pa.Snapshot(ctx); return errors.Join(err, drain(r)) },
		"many records at once": func() error {
			_, err := w.pa.raw.Txn(ctx).Then(clientv3.OpDelete(prefix+"volume/", clientv3.WithPrefix())).Commit()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.meter.all()
			err := try()
			if !errors.Is(err, federation.ErrAccess) && status.Code(err) != codes.PermissionDenied && !strings.Contains(fmt.Sprint(err),
				"PermissionDenied") {
				t.Fatalf("it is not refused: %v", err)
			}
			if w.meter.all() == before {
				t.Error("it is not counted")
			}
		})
	}
	for name, try := range map[string]func() error{
		"all keys are deleted": func() error { _, err := w.admin.raw.Delete(ctx, prefix, clientv3.WithPrefix()); return err },
		"etcd is compacted":    func() error { _, err := w.admin.raw.Compact(ctx, 2); return err },
		"users are made":       func() error { _, err := w.admin.raw.UserAdd(ctx, "x", "y"); return err },
		"members are removed":  func() error { _, err := w.admin.raw.MemberRemove(ctx, 1); return err },
		"a condition probes values": func() error {
			_, err := w.pa.raw.Txn(ctx).If(clientv3.Compare(clientv3.Value(prefix+"volume/v1"), ">",
				"x")).Then(clientv3.OpGet(prefix + "x")).Commit()
			return err
		},
		"something is done when a condition fails": func() error {
			_, err := w.pa.raw.Txn(ctx).Then(clientv3.OpGet(prefix + "x")).Else(clientv3.OpDelete(prefix + "volume/v1")).Commit()
			return err
		},
		"a transaction in a transaction": func() error {
			_, err := w.pa.raw.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(prefix + "volume/v1")}, nil)).Commit()
			return err
		},
		"a lease with a number of one's own": func() error {
			_, err := w.ga.raw.Txn(ctx).Then(clientv3.OpPut(prefix+"alive/ga", string(value), clientv3.WithLease(lease.ID))).Commit()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := try(); err == nil {
				t.Fatal("it is not refused")
			}
		})
	}
}

// drain reads a snapshot until it ends.
func drain(r io.ReadCloser) error {
	if r == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
