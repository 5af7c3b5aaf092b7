// SPDX-License-Identifier: Apache-2.0

package replica_test

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/replica"
)

var manyVolumes = flag.Int("volumes", 600, "volumes of TestPromisesOfManyVolumes")

// direct carries envelopes from call to call of pump. It counts what is sent.
type direct struct {
	f          *fleet
	mu         sync.Mutex
	queue      []delivery
	messages   int
	envelopes  int
	connection map[[2]string]bool // pairs that spoke
}

type delivery struct {
	to  string
	all []replica.Envelope
}

// end is a gateway's end of a direct network.
type end struct {
	net  *direct
	self string
}

func (e end) Send(gateway string, all []replica.Envelope) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.net.queue = append(e.net.queue, delivery{gateway, all})
	e.net.messages++
	e.net.envelopes += len(all)
	e.net.connection[[2]string{e.self, gateway}] = true
}

func (e end) SendFrames(_ context.Context, gateway string, x replica.Envelope) error {
	n := e.net.f.nodes[gateway]
	if n == nil {
		return errors.New("no such gateway")
	}
	n.Deliver([]replica.Envelope{x})
	return nil
}

// pump delivers until nothing is under way.
func (d *direct) pump() {
	for quiet := 0; quiet < 2; {
		d.mu.Lock()
		all := d.queue
		d.queue = nil
		d.mu.Unlock()
		for _, x := range all {
			d.f.nodes[x.to].Deliver(x.all)
		}
		switch {
		case len(all) > 0:
			quiet = 0
		case d.f.busy():
			quiet = 0
			time.Sleep(50 * time.Microsecond)
		default:
			quiet++
		}
	}
}

func newDirect(t *testing.T, gateways, holders, volumes int) (*fleet, *direct) {
	d := &direct{connection: map[[2]string]bool{}}
	d.f = newFleet(t, gateways, holders, volumes, func(f *fleet, gateway string) replica.Transport {
		d.f = f
		return end{d, gateway}
	})
	d.f.settle = d.pump
	d.f.begin()
	return d.f, d
}

// What idle volumes cost grows with the pairs of gateways that share some, and neither with the
// number of volumes nor with that of other gateways (ADR 44).
func TestIdleVolumesCostNothingElsewhere(t *testing.T) {
	const beats = 20
	count := func(gateways, holders, volumes int) (messages, pairs int) {
		f, d := newDirect(t, gateways, holders, volumes)
		d.messages, d.envelopes = 0, 0
		clear(d.connection)
		for range beats {
			f.beat()
		}
		if v := f.lapsed(); v >= 0 {
			t.Fatalf("a promise for volume %d lapsed", v)
		}
		if want := beats * volumes * 2 * 2; d.envelopes != want { // a beat for each of two copies, and its answer
			t.Errorf("%d volumes at %d of %d gateways: %d envelopes, want %d", volumes, holders, gateways, d.envelopes, want)
		}
		return d.messages, len(d.connection)
	}
	for _, c := range []struct{ gateways, holders, volumes int }{{6, 6, 12}, {6, 6, 48}, {18, 6, 48}, {18, 18, 48}} {
		messages, pairs := count(c.gateways, c.holders, c.volumes)
		// Each home speaks to the next two gateways, and they answer.
		if want := beats * 4 * c.holders; messages != want {
			t.Errorf("%d volumes at %d of %d gateways: %d messages in %d beats, want %d", c.volumes, c.holders, c.gateways, messages,
				beats, want)
		}
		if pairs != 4*c.holders {
			t.Errorf("%d volumes at %d of %d gateways: %d pairs spoke, want %d", c.volumes, c.holders, c.gateways, pairs, 4*c.holders)
		}
	}
}

// No promise lapses, however many volumes a gateway has.
func TestPromisesOfManyVolumes(t *testing.T) {
	f, d := newDirect(t, 5, 5, *manyVolumes)
	d.messages = 0
	const beats = 45
	for range beats {
		f.beat()
		if v := f.lapsed(); v >= 0 {
			t.Fatalf("a promise for volume %d lapsed", v)
		}
	}
	t.Logf("%d volumes, 5 gateways: %.1f messages a heartbeat", *manyVolumes, float64(d.messages)/beats)
}
