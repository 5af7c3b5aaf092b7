// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/spec"
	"github.com/weir-storage/weir/pki"
)

// gateways plays those of all sites, and the operators of the others: it registers sites, keeps
// heartbeats, makes the volumes that others own, takes up the volumes that this cluster makes, and
// reports on all as homes do. What it writes in bulk are the records that package federation
// describes, many in a transaction.
type gateways struct {
	t    *testing.T
	reg  *etcd.Registry
	bulk *clientv3.Client
	keys map[string][]byte // public, by site
	ring federation.Keyring
	// writes counts the transactions, each of which raises the registry's revision by one.
	writes atomic.Int64

	mu     sync.Mutex
	served map[string]federation.Observed // as last reported
}

// sites is how many there are, this one included.
const sites = 100

// prefix is that of the federation's keys.
const prefix = "/weir/" + federationName + "/"

func siteName(i int) string {
	if i == 0 {
		return here
	}
	return fmt.Sprintf("site-%03d", i)
}

// orgName is the organization of a site: each has one.
func orgName(i int) string { return fmt.Sprintf("org-%d", i) }

func newGateways(r *rig) *gateways {
	g := &gateways{t: r.t, reg: r.registry(), keys: map[string][]byte{}, served: map[string]federation.Observed{}}
	var err error
	g.bulk, err = clientv3.New(clientv3.Config{Endpoints: []string{r.server.Endpoint}, TLS: r.creds.Client(pki.Expect{}),
		DialTimeout: time.Minute, Logger: zap.NewNop()})
	r.ok(err)
	r.t.Cleanup(func() { _ = g.bulk.Close() })
	for i := range sites {
		name := siteName(i)
		key, err := keyring.NewSiteKey()
		r.ok(err)
		g.keys[name] = key.Public()
		r.ok(g.register(i, "7440"))
		g.writes.Add(1)
		// Longer than a gateway's: a busy machine is not to look like sites that die.
		_, err = g.reg.Heartbeat(r.t.Context(), federation.Alive{Gateway: name + "-0", Site: name, Incarnation: "1"}, 10*time.Minute)
		r.ok(err)
	}
	g.ring, _, err = keyring.New("any", g.keysOf(siteName(1), siteName(2), here), rand.Reader)
	r.ok(err)
	return g
}

func (g *gateways) keysOf(sites ...string) map[string][]byte {
	out := map[string][]byte{}
	for _, s := range sites {
		out[s] = g.keys[s]
	}
	return out
}

func (g *gateways) register(i int, port string) error {
	name := siteName(i)
	g.writes.Add(1)
	return g.reg.Register(g.t.Context(),
		federation.Site{Name: name, Organization: orgName(i), Lends: []string{federation.LendsToAll},
			Region: fmt.Sprintf("region-%d", i%7),
			Labels: map[string]string{"tier": "research"}, WrapKey: g.keys[name], Capacity: 1 << 50,
			Store: federation.SiteStore{Endpoint: "https://s3." + name + ".example.org", Bucket: "weir"},
			Gateways: []federation.Gateway{{Name: name + "-0", Addr: name + ".example.org:" + port, NFSAddr: name + ".example.org:2049",
				Incarnation: "1"}}})
}

// put is one key and the value that is put there: a record, or text.
type put struct {
	key   string
	value any
}

// write makes all puts, in order.
func (g *gateways) write(ctx context.Context, puts ...put) error {
	for some := range slices.Chunk(puts, 100) { // etcd takes 128 in a transaction
		ops := make([]clientv3.Op, len(some))
		for i, p := range some {
			text, ok := p.value.(string)
			if !ok {
				b, err := federation.Encode(p.value)
				if err != nil {
					return err
				}
				text = string(b)
			}
			ops[i] = clientv3.OpPut(prefix+p.key, text)
		}
		g.writes.Add(1)
		if _, err := g.bulk.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("write %s and %d more: %w", some[0].key, len(some)-1, err)
		}
	}
	return nil
}

// theirs is a volume of another cluster. Its record comes last, for it is to look as if it had been
// served for long. Nobody here opens its keyring.
func (g *gateways) theirs(name string, owner int, at ...string) []put {
	v := federation.Volume{UUID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String(), Name: name,
		Owner: orgName(owner), OwnerSite: siteName(owner),
		OwnerCluster: uuid.NewSHA1(uuid.NameSpaceDNS,
			[]byte(siteName(owner))).String(), Generation: 1, Spec: federation.VolumeSpec{Size: 100 << 30},
		Sites: append([]string{siteName(owner)}, at...), Grants: []federation.Grant{{Site: here, Namespace: namespace,
			Access: federation.ReadWrite}}, CreatedAt: time.Now().UTC()}
	v.Spec.Replication.Copies = len(v.Sites)
	spec.Default(&v.Spec)
	ring := g.ring
	ring.Volume, ring.Generation = v.UUID, 1
	return append(append([]put{{"keyring/" + v.UUID, ring}}, g.serve(v)...), put{"volume/" + v.UUID, v}, put{"name/" + v.Name, v.UUID})
}

// serve takes up a volume: its first site's gateway is home, and reports the others as following
// it.
func (g *gateways) serve(v federation.Volume) []put {
	g.mu.Lock()
	defer g.mu.Unlock()
	o, known := g.served[v.UUID]
	if known && o.Generation >= v.Generation && len(o.Replicas) == len(v.Sites) {
		return nil
	}
	var out []put
	home := federation.Member{Gateway: v.Sites[0] + "-0", Site: v.Sites[0], Incarnation: "1"}
	if !known {
		out = append(out,
			put{"control/" + v.UUID, federation.Control{Volume: v.UUID, Epoch: 1, Home: home, Members: []federation.Member{home}, Change: 1,
				History: []federation.EpochStart{{Epoch: 1}}}})
		o = federation.Observed{Volume: v.UUID, Gateway: home.Gateway, Epoch: 1, Home: home.Gateway, Used: 10<<30 + 50<<20}
	}
	o.Generation, o.Replicas, o.At = v.Generation, nil, time.Now().UTC()
	for _, s := range v.Sites {
		state := federation.ReplicaFollower
		if s == home.Site {
			state = federation.ReplicaHome
		}
		o.Replicas = append(o.Replicas, federation.ObservedReplica{Gateway: s + "-0", Site: s, State: state})
	}
	g.served[v.UUID] = o
	return append(out, put{"observed/" + v.UUID + "/" + o.Gateway, o})
}

// report has the home of every volume report what half a minute of writing changes: it has
// committed more, the copies are a little behind, and a little more is used. It tells how many
// reports these were.
func (g *gateways) report(round int) (int, error) {
	g.mu.Lock()
	var out []put
	for id, o := range g.served {
		i := len(out)
		o.Commit, o.At = federation.Position{Seq: uint64(round), Off: uint64(i) * 4096}, time.Now().UTC()
		o.Used += federation.Bytes(4096 * (1 + i%256))
		o.Replicas = slices.Clone(o.Replicas)
		for j := range o.Replicas {
			if o.Replicas[j].State != federation.ReplicaHome {
				o.Replicas[j].LagSeconds, o.Replicas[j].LagBytes = float64((i+j+round)%10)/10.1, int64(i%1024)<<10
			}
		}
		g.served[id] = o
		out = append(out, put{"observed/" + id + "/" + o.Gateway, o})
	}
	g.mu.Unlock()
	return len(out), g.write(g.t.Context(), out...)
}

// follow takes up the volumes that appear or change from now on, until ctx ends.
func (g *gateways) follow(ctx context.Context, play *sync.WaitGroup) error {
	head, err := g.reg.Head(ctx)
	if err != nil {
		return err
	}
	play.Go(func() {
		for res := range g.bulk.Watch(ctx, prefix+"volume/", clientv3.WithPrefix(), clientv3.WithRev(int64(head.Revision)+1)) {
			err := res.Err()
			var out []put
			for _, e := range res.Events {
				var v federation.Volume
				if err == nil {
					err = federation.Decode("volume", string(e.Kv.Key), e.Kv.Value, &v)
				}
				if err == nil {
					out = append(out, g.serve(v)...)
				}
			}
			if err == nil {
				err = g.write(ctx, out...)
			}
			if err != nil && ctx.Err() == nil {
				g.t.Errorf("take up volumes: %v", err)
			}
		}
	})
	return nil
}

// fill makes the volumes of others: so many with a copy here, to import, and that do not concern
// this cluster.
func (g *gateways) fill(p parts) error {
	var out []put
	for i := range p.copies + p.imports + p.foreign {
		owner, next := 1+i%(sites-1), siteName(1+(i+1)%(sites-1))
		switch {
		case i < p.copies:
			out = append(out, g.theirs(fmt.Sprintf("team.copy-%05d", i), owner, next, here)...)
		case i < p.copies+p.imports:
			out = append(out, g.theirs(importName(i-p.copies), owner, next)...)
		default:
			out = append(out, g.theirs(fmt.Sprintf("team.foreign-%05d", i), owner, next)...)
		}
	}
	return g.write(g.t.Context(), out...)
}

func importName(i int) string { return fmt.Sprintf("team.import-%05d", i) }

// loads is how many copies the registry has at each site.
func (g *gateways) loads() (map[string]int32, error) {
	list, err := g.reg.ListVolumes(g.t.Context())
	out := map[string]int32{}
	for _, v := range list {
		for _, s := range v.Volume.Sites {
			out[s]++
		}
	}
	return out, err
}

// each calls f for 0 to n-1, several at a time, and returns the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					stop(err)
				}
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}
