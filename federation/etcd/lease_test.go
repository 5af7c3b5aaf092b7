// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/etcd/etcdtest"
)

// A gateway whose heartbeat begins anew does not vanish in between, although earlier tries, whose
// answers did not come, had bound the key to their leases: those end, and the key stays.
func TestHeartbeatIsNotInterrupted(t *testing.T) {
	server := etcdtest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // guards against a hang only
	defer cancel()
	r := open(t, Config{Endpoints: []string{server.Endpoint}})
	h, err := r.Heartbeat(ctx, federation.Alive{Gateway: "ams-1", Site: "ams", Incarnation: "i"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := h.(*beat)
	b.stop() // nothing else regains it
	<-b.done
	first := b.lease
	late, err := b.c.client.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	b.doubtful = []clientv3.LeaseID{first, late.ID}
	changes := b.c.client.Watch(ctx, b.key, clientv3.WithCreatedNotify())
	<-changes
	run, stop := context.WithCancel(ctx)
	defer stop()
	if _, err := b.begin(ctx, run, time.Minute); err != nil {
		t.Fatal(err)
	}
	last, err := b.c.client.Get(ctx, b.key)
	if err != nil || len(last.Kvs) != 1 || clientv3.LeaseID(last.Kvs[0].Lease) != b.lease || b.lease == first || len(b.doubtful) != 0 {
		t.Fatalf("the key is %+v, of lease %x, in doubt are %v, %v", last.Kvs, b.lease, b.doubtful, err)
	}
	for upTo := int64(0); upTo < last.Kvs[0].ModRevision; {
		for _, e := range (<-changes).Events {
			if upTo = e.Kv.ModRevision; e.Type == clientv3.EventTypeDelete {
				t.Error("it vanished in between")
			}
		}
	}
	leases, err := b.c.client.Leases(ctx)
	if err != nil || len(leases.Leases) != 1 {
		t.Errorf("leases of earlier tries are left: %+v, %v", leases, err)
	}
	if err := h.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
