// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
)

// beat is a heartbeat: one goroutine that owns the lease.
type beat struct {
	c     *kv
	key   string
	value string
	ttl   int64 // seconds

	stop context.CancelFunc
	done chan struct{}

	// doubtful are leases of tries that failed, to which the key may be bound, or be bound yet by a
	// request on its way. Only who runs begin uses it.
	doubtful []clientv3.LeaseID

	mu    sync.Mutex
	lease clientv3.LeaseID
}

func (c *kv) Lease(ctx context.Context, key string, value []byte, ttl time.Duration) (federation.Heartbeat, error) {
	run, stop := context.WithCancel(c.ctx)
	b := &beat{c: c, key: c.prefix + key, value: string(value), ttl: int64(ttl / time.Second), stop: stop, done: make(chan struct{})}
	alive, err := b.begin(ctx, run, c.cfg.CallTimeout)
	if err != nil {
		stop()
		return nil, err
	}
	go b.run(run, alive)
	return b, nil
}

// begin takes a lease and binds the key to it, within limit; the channel ends when the lease is
// lost.
func (b *beat) begin(ctx, run context.Context, limit time.Duration) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l, err := b.c.client.Grant(call, b.ttl)
	if err != nil {
		return nil, b.c.readError(ctx, err)
	}
	again := len(b.doubtful) > 0
	b.doubtful = append(b.doubtful, l.ID)
	if err := b.put(call, l.ID); err != nil {
		return nil, b.c.changeError(ctx, err)
	}
	// A late request of a try before would bind the key to a lease that nobody keeps. One that has
	// ended refuses it. The key is bound to the new lease by now, so that it stays when the former
	// ones end, unless such a request came in between: then it is put once more.
	for len(b.doubtful) > 1 {
		if _, err := b.c.client.Revoke(call, b.doubtful[0]); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, b.c.changeError(ctx, err)
		}
		b.doubtful = b.doubtful[1:]
	}
	if again {
		if err := b.put(call, l.ID); err != nil {
			return nil, b.c.changeError(ctx, err)
		}
	}
	b.doubtful = nil
	b.mu.Lock()
	b.lease = l.ID
	b.mu.Unlock()
	alive, err := b.c.client.KeepAlive(run, l.ID)
	if err != nil {
		return nil, b.c.readError(ctx, err)
	}
	return alive, nil
}

// put binds the key to a lease.
func (b *beat) put(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := b.c.client.Put(ctx, b.key, b.value, clientv3.WithLease(lease))
	return err
}

func (b *beat) run(ctx context.Context, alive <-chan *clientv3.LeaseKeepAliveResponse) {
	defer close(b.done)
	for {
		for range alive {
		}
		if ctx.Err() != nil {
			return
		}
		b.c.cfg.Log.Warn("heartbeat lost, beginning anew", "key", b.key)
		// Each try goes to another member. One whose connection has lost packets stays silent for
		// long after the link has healed, so none is waited for as long as for an answer that
		// matters: others take this gateway for dead meanwhile.
		limit := min(b.c.cfg.CallTimeout, max(time.Second, time.Duration(b.ttl)*time.Second/4))
		for {
			var err error
			if alive, err = b.begin(ctx, ctx, limit); err == nil {
				b.c.cfg.Log.Info("heartbeat regained", "key", b.key)
				break
			}
			if b.c.pause(ctx) != nil {
				return
			}
		}
	}
}

func (b *beat) Stop(ctx context.Context) error {
	b.stop()
	<-b.done
	call, cancel := context.WithTimeout(ctx, b.c.cfg.CallTimeout)
	defer cancel()
	_, err := b.c.client.Revoke(call, b.lease)
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) { // it expired, and its key with it
		return nil
	}
	return b.c.readError(ctx, err)
}
