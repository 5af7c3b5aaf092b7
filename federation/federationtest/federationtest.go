// SPDX-License-Identifier: Apache-2.0

// Package federationtest is the suite that every federation.Registry passes. A second
// implementation's test is a Harness and a call of Run.
package federationtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
)

// Harness is one empty federation under test.
type Harness struct {
	// Open returns a further connection; guard may be nil. The suite closes it.
	Open func(t *testing.T, guard *federation.Guard) federation.Registry
	// Abandon ends a connection as a crash would and lets the gateway's heartbeat expire, which may
	// take until later.
	Abandon func(t *testing.T, r federation.Registry, gateway string)
}

// TTL is that of the suite's heartbeats: the shortest.
const TTL = time.Second

// Run runs the suite; start is called once per test.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*fixture)
	}{
		{"ControlSwap", controlSwap},
		{"ControlRules", controlRules},
		{"ControlRace", controlRace},
		{"ControlDelete", controlDelete},
		{"VolumeCreate", volumeCreate},
		{"VolumeUpdate", volumeUpdate},
		{"VolumePurge", volumePurge},
		{"NameRace", nameRace},
		{"SiteRegister", siteRegister},
		{"SiteRace", siteRace},
		{"Heartbeat", heartbeat},
		{"Admissions", admissions},
		{"Keyrings", keyrings},
		{"Observed", observed},
		{"Claims", claims},
		{"Attachments", attachments},
		{"Losses", losses},
		{"Charters", charters},
		{"Papers", papers},
		{"Watch", watch},
		{"WatchEnds", watchEnds},
		{"GuardSees", guardSees},
		{"Canceled", canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The deadline only keeps a hang from lasting.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f := &fixture{T: t, ctx: ctx, h: start(t)}
			f.r = f.open()
			tt.run(f)
		})
	}
}

type fixture struct {
	*testing.T
	ctx context.Context
	h   Harness
	r   federation.Registry
}

func (f *fixture) open() federation.Registry {
	f.Helper()
	r := f.h.Open(f.T, nil)
	f.Cleanup(func() { _ = r.Close() })
	return r
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

func (f *fixture) is(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("error is %v, want %v", err, want)
	}
}

// Control returns a valid control record of volume in epoch with members gw0 (home), gw1, …
func Control(volume string, epoch uint64, members int) federation.Control {
	c := federation.Control{Volume: volume, Epoch: epoch}
	for i := range members {
		n := string(rune('0' + i))
		c.Members = append(c.Members, federation.Member{Gateway: "gw" + n, Site: "site" + n, Incarnation: "inc" + n})
	}
	c.Home = c.Members[0]
	for e := uint64(1); e <= epoch; e++ {
		c.History = append(c.History, federation.EpochStart{Epoch: e, Start: federation.Position{Seq: e - 1}})
	}
	return c
}

// Volume returns a valid volume record.
func Volume(uuid, name string) federation.Volume {
	return federation.Volume{UUID: uuid, Name: name, Owner: "surf", Generation: 1, Sites: []string{"site0"},
		Spec: federation.VolumeSpec{Size: 10 << 30, Replication: federation.Replication{Copies: 1, Spread: federation.SpreadSite}}}
}

// Site returns a valid site with one gateway.
func Site(name, gateway string) federation.Site {
	return federation.Site{Name: name, Organization: "surf", Region: "nl", Labels: map[string]string{"tier": "1"},
		Gateways: []federation.Gateway{{Name: gateway, Addr: "127.0.0.1:7001", NFSAddr: "127.0.0.1:2049", Incarnation: "inc0"}},
		Store:    federation.SiteStore{Endpoint: "http://127.0.0.1:7070", Bucket: "weir"}, WrapKey: []byte{1, 2, 3}}
}
