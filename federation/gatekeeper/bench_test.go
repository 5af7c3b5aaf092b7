// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

var benchKeys = flag.Int("keys", 20_000, "records in the registry of the benchmark: a million for a federation of 100 organizations, "+
	"1 000 sites and 10 000 volumes")

var benchSites = flag.Int("sites", 0, "sites that use the registry meanwhile, through the gatekeeper: each has a connection, "+
	"a heartbeat, and reports of ten volumes every 30 s")

// reportEvery is how often a site with ten volumes reports one.
const reportEvery = 3 * time.Second

// busy lets sites use the registry until the benchmark ends, and returns how many reports they
// made.
func busy(b *testing.B, w *world) (reports *atomic.Int64) {
	reports = new(atomic.Int64)
	ctx, stop := context.WithCancel(b.Context())
	var all sync.WaitGroup
	b.Cleanup(func() { stop(); all.Wait() })
	ready := make(chan error, *benchSites)
	begins := make(chan struct{}, 32) // so many sites begin at once
	for i := range *benchSites {
		name := fmt.Sprintf("s%04d", i)
		s := w.as(fmt.Sprintf("O%02d", i%100), name, pki.PartGateway, "g"+name)
		all.Go(func() {
			begins <- struct{}{}
			err := s.Register(ctx, siteOf(name, s.id.Organization))
			if err == nil {
				_, err = s.Heartbeat(ctx, federation.Alive{Gateway: "g" + name, Site: name, Incarnation: "i"}, 10*time.Second)
			}
			<-begins
			ready <- err
			wait := time.Duration(i) * reportEvery / time.Duration(*benchSites) // not all at once
			for n := uint64(0); err == nil; n++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
				wait = reportEvery
				err = s.PutObserved(ctx, federation.Observed{Volume: "v1", Gateway: "g" + name, Home: "g" + name, Epoch: n, Generation: 3})
				if err != nil && ctx.Err() == nil {
					b.Error(err)
				}
				reports.Add(1)
			}
		})
	}
	for range *benchSites {
		w.ok(<-ready)
	}
	return reports
}

// BenchmarkRequests compares requests through a gatekeeper, over TLS, with the same ones to etcd
// itself, without, in turns: a read of two records, and an attachment that is judged by the
// volume's record and the site's.
func BenchmarkRequests(b *testing.B) {
	w := newWorldOfBefore(b)
	var organizations []string
	for i := range 100 {
		organizations = append(organizations, fmt.Sprintf("O%02d", i))
	}
	w.conceals = true
	w.signed(organizations...)
	ctx := b.Context()
	must[federation.Revision](w)(w.pa.CreateVolume(ctx, volumeOf("v1", "one", "A", "a"), ringOf("v1", "a")))
	plain := w.plain
	began := time.Now()
	value := string(must[[]byte](w)(federation.Encode(federation.Observed{Volume: "x", Gateway: "ga", Home: "ga", Epoch: 7, Generation: 3,
		Replicas: []federation.ObservedReplica{{Gateway: "gb", Site: "b", State: federation.ReplicaMember, LagSeconds: 0.2}}})))
	for i := 0; i < *benchKeys; {
		var ops []clientv3.Op
		for range min(100, *benchKeys-i) {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%sobserved/volume-%05d/gateway-%03d", prefix, i/100, i%100), value))
			i++
		}
		_, err := plain.Txn(ctx).Then(ops...).Commit()
		w.ok(err)
	}
	b.Logf("%d records of others were made in %v", *benchKeys, time.Since(began).Round(time.Millisecond))
	reports := busy(b, w)
	var attachments []clientv3.Op // signed before, by who writes them
	for i := range 5000 {         // each is checked anew
		a := federation.Attachment{Volume: "v1", Site: "a", Node: fmt.Sprint("n", i), Access: federation.ReadWrite}
		key := "attachment/a/v1/" + a.Node
		attachments = append(attachments, clientv3.OpPut(prefix+key, string(w.ca.value(key, a))))
	}
	attach := func(i int) clientv3.Op { return attachments[i%len(attachments)] }
	for name, op := range map[string]func(c *clientv3.Client, i int) error{
		"read": func(c *clientv3.Client, _ int) error {
			_, err := c.Txn(ctx).Then(clientv3.OpGet(prefix+"volume/v1"), clientv3.OpGet(prefix+"keyring/v1")).Commit()
			return err
		},
		"change": func(c *clientv3.Client, i int) error {
			_, err := c.Txn(ctx).Then(attach(i)).Commit()
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			var took [2][]time.Duration
			var cpu [2]time.Duration
			began, busy, before := time.Now(), used(), reports.Load()
			for i := range b.N {
				for side, c := range []*clientv3.Client{plain, w.ca.raw} {
					before, began := used(), time.Now()
					if err := op(c, i); err != nil {
						b.Fatal(err)
					}
					took[side] = append(took[side], time.Since(began))
					cpu[side] += used() - before
				}
			}
			at := func(side int, part float64) float64 {
				slices.Sort(took[side])
				return float64(took[side][int(part*float64(len(took[side])-1))].Microseconds())
			}
			for _, p := range []float64{0.5, 0.99} {
				b.ReportMetric(at(0, p), fmt.Sprintf("plain-p%.0f-µs", p*100))
				b.ReportMetric(at(1, p), fmt.Sprintf("gate-p%.0f-µs", p*100))
				b.ReportMetric(at(1, p)-at(0, p), fmt.Sprintf("added-p%.0f-µs", p*100))
			}
			if *benchSites == 0 {
				b.ReportMetric(float64((cpu[1]-cpu[0]).Microseconds())/float64(b.N), "added-cpu-µs/op")
				return
			}
			span := time.Since(began)
			b.ReportMetric(float64(reports.Load()-before)/span.Seconds(), "reports/s")
			b.ReportMetric(100*float64(used()-busy)/float64(span), "processor-%") // of clients and gatekeeper
		})
	}
}

// used is the time that this process was on a processor: the clients and the gatekeeper, not etcd.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it has no error for itself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
