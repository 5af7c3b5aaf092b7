// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/quantity"
)

func TestPositionOrder(t *testing.T) {
	asc := []federation.Position{{}, {Off: 1}, {Seq: 1}, {Seq: 1, Off: 9}, {Seq: 2, Off: 3}}
	for i, p := range asc {
		for j, q := range asc {
			if got, want := p.Compare(q), min(1, max(-1, i-j)); got != want || p.Less(q) != (i < j) {
				t.Errorf("%v compared with %v is %d, want %d", p, q, got, want)
			}
		}
	}
}

func TestBytes(t *testing.T) {
	for in, want := range map[string]federation.Bytes{
		"0": 0, "1": 1, "-3": -3, "10Gi": 10 << 30, "500M": 500e6, "1.5Ki": 1536, "7Ei": 7 << 60, "1k": 1000, "0.5T": 5e11,
	} {
		if got, err := quantity.ParseBytes(in); err != nil || got != want {
			t.Errorf("%q is %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Gi", "1 Gi", "1gi", "1K", "1e3", "0x10", "1/2", "8Ei", "0.1", "--1", "1.2.3", "NaN",
		strings.Repeat("9", 40)} {
		if got, err := quantity.ParseBytes(in); err == nil {
			t.Errorf("%q is read as %d", in, got)
		}
	}
	for n, want := range map[federation.Bytes]string{0: "0", 1000: "1000", 1024: "1Ki", 500e6: "500M", 1 << 30: "1Gi", 1536 << 20: "1536Mi",
		-2048: "-2Ki"} {
		if n.String() != want {
			t.Errorf("%d is written %s, want %s", int64(n), n, want)
		}
	}
}

func TestQuantitiesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type both struct {
			B federation.Bytes
			D federation.Duration
		}
		in := both{federation.Bytes(rapid.Int64().Draw(t, "bytes")), federation.Duration(rapid.Int64().Draw(t, "time"))}
		js, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out both
		if err := json.Unmarshal(js, &out); err != nil || out != in {
			t.Fatalf("%+v became %s and then %+v, %v", in, js, out, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct {
		value string
		err   error
	}{
		{`{"version":1,"record":{"gateway":"a","site":"b","incarnation":"c"}}`, nil},
		{`{"version":2,"record":{"gateway":"a"}}`, federation.ErrVersion},
		{`{"version":1,"record":{"gateway":"a","newer":1}}`, federation.ErrInvalid},
		{`{"version":0,"record":{}}`, federation.ErrInvalid},
		{`{"record":{}}`, federation.ErrInvalid},
		{`{"version":1}`, federation.ErrInvalid},
		{`garbage`, federation.ErrInvalid},
		{``, federation.ErrInvalid},
	} {
		var a federation.Alive
		if err := federation.Decode("alive", "a", []byte(tt.value), &a); !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: error %v, want %v", tt.value, err, tt.err)
		}
	}
}

// A forced takeover may start the new epoch before the old one began: the history keeps both.
func TestHistoryMayStartEarlier(t *testing.T) {
	prev := federationtest.Control("v", 3, 2)
	next := prev.Clone()
	next.Epoch, next.Home = 4, next.Members[1]
	next.History = append(next.History, federation.EpochStart{Epoch: 4, Start: federation.Position{}})
	if err := federation.CheckSwap(&prev, next); err != nil {
		t.Fatal(err)
	}
	// What the first swap of an epoch did not know yet may be added by a later one.
	late := prev.Clone()
	late.Epoch = 4
	if err := federation.CheckSwap(&prev, late); err != nil {
		t.Fatal(err)
	}
	if err := federation.CheckSwap(&late, next); !errors.Is(err, federation.ErrInvalid) {
		t.Fatalf("another home in the same epoch: %v", err)
	}
	next.Home = late.Home
	if err := federation.CheckSwap(&late, next); err != nil {
		t.Fatal(err)
	}
}

// An epoch never goes back, whatever the histories say.
func TestEpochDoesNotGoBack(t *testing.T) {
	prev := federationtest.Control("v", 3, 2)
	next := prev.Clone()
	prev.History, next.History = nil, nil
	next.Epoch = 2
	if err := federation.CheckSwap(&prev, next); !errors.Is(err, federation.ErrInvalid) {
		t.Fatal(err)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	a := federationtest.Control("v", 2, 2)
	b := a.Clone()
	b.Members[0].Site, b.History[0].Epoch = "x", 9
	if a.Members[0].Site == "x" || a.History[0].Epoch == 9 {
		t.Fatal("a clone shares memory")
	}
}

func TestGuardSavesSparingly(t *testing.T) {
	saves := 0
	var kept federation.GuardState
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return kept, nil },
		func(s federation.GuardState) error { saves++; kept = s; return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for rev := range federation.Revision(2500) {
		if err := g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: rev + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if saves != 3 || kept.Revision < 2001 {
		t.Fatalf("%d saves, the last of revision %d", saves, kept.Revision)
	}
	// An answer that was overtaken by another is not a registry that went back.
	earlier := g.Ask()
	earlier.Revision = 2399
	if err := g.Observe(earlier, federation.Head{Cluster: 1, Revision: 2400}); err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: 2400}); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("error %v, want rewound", err)
	}
	if err := g.Err(); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("it does not last: %v", err)
	}
}

func TestGuardSaveFails(t *testing.T) {
	broken := errors.New("disk")
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(federation.GuardState) error { return broken }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 1}, federation.Control{Volume: "v", Change: 1}); !errors.Is(err, broken) {
		t.Fatalf("error %v, want that of save", err)
	}
	_, err = federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, broken }, nil, nil)
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want that of load", err)
	}
}

// TestGuardWhileItsDiskHangs: who only asks the guard does not wait for its disk. An answer with a
// control record counts when that is durable, also when another call saw it first. A registry that
// went back is refused at once.
func TestGuardWhileItsDiskHangs(t *testing.T) {
	hangs, goOn := make(chan struct{}), make(chan struct{})
	var kept federation.GuardState
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(s federation.GuardState) error {
			if s.Changes["v"] > 0 {
				hangs <- struct{}{}
				<-goOn
			}
			kept = s
			return nil
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := federation.Head{Cluster: 1, Revision: 5}
	if err := g.Observe(g.Ask(), h); err != nil {
		t.Fatal(err)
	}
	seen := make(chan error, 2)
	see := func() { seen <- g.Observe(g.Ask(), h, federation.Control{Volume: "v", Change: 1}) }
	go see()
	<-hangs
	go see()
	if err := errors.Join(g.Err(), g.Observe(g.Ask("v"), h)); err != nil || g.State().Changes["v"] != 1 {
		t.Errorf("while it is saved: %v, %+v", err, g.State())
	}
	select {
	case err := <-seen:
		t.Errorf("an answer counts before its control record is durable: %v", err)
	default:
	}
	refused := make(chan error)
	turned := g.Turned()
	go func() { refused <- g.Refuse("a notice") }()
	<-turned
	if err := g.Err(); !errors.Is(err, federation.ErrRewound) {
		t.Errorf("when it is refused: %v", err)
	}
	goOn <- struct{}{}
	<-hangs // the verdict
	goOn <- struct{}{}
	for _, c := range []chan error{seen, seen, refused} {
		if err := <-c; !errors.Is(err, federation.ErrRewound) {
			t.Errorf("after it was refused: %v", err)
		}
	}
	if kept.Changes["v"] != 1 || kept.Rewound == "" {
		t.Errorf("it kept %+v", kept)
	}
}

// TestGuardSavesAgain: a control record whose save failed is saved before it counts when it is seen
// again.
func TestGuardSavesAgain(t *testing.T) {
	broken := errors.New("disk")
	fails := error(nil)
	var kept federation.GuardState
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return federation.GuardState{}, nil },
		func(s federation.GuardState) error {
			if fails == nil {
				kept = s
			}
			return fails
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	see := func() error {
		return g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: 5}, federation.Control{Volume: "v", Change: 1})
	}
	fails = broken
	for range 2 {
		if err := see(); !errors.Is(err, broken) {
			t.Errorf("error %v, want that of save", err)
		}
	}
	fails = nil
	if err := see(); err != nil || kept.Changes["v"] != 1 {
		t.Errorf("when the disk is well: %v, it kept %+v", err, kept)
	}
	fails = broken
	if err := g.Forget("v"); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of save", err)
	}
	fails = nil
	if err := g.Forget("v"); err != nil || len(kept.Changes) > 0 {
		t.Errorf("when the disk is well: %v, it kept %+v", err, kept)
	}
}

func TestMergeSiteKeepsWhatIsNotSaid(t *testing.T) {
	prev, next := federationtest.Site("ams", "b"), federationtest.Site("ams", "a")
	next.Store, next.WrapKey = federation.SiteStore{}, nil
	got, err := federation.MergeSite(prev, next)
	if err != nil || got.Store != prev.Store || string(got.WrapKey) != string(prev.WrapKey) || len(got.Gateways) != 2 ||
		got.Gateways[0].Name != "a" {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestMergeSiteOfAnOperator(t *testing.T) {
	gw := federation.Site{Name: "ams", Organization: "o", Region: "west", Labels: map[string]string{"a": "gateway"},
		Gateways: []federation.Gateway{{Name: "g", Addr: "h:1"}}, Store: federation.SiteStore{Endpoint: "s"}, Capacity: 9,
		Lends: []string{"p"}}
	op := federation.Site{Name: "ams", Organization: "o", Region: "east", Labels: map[string]string{"a": "operator"}, Cluster: "uid"}
	both, err := federation.MergeSite(gw, op)
	if err != nil || both.Region != "east" || both.Labels["a"] != "operator" || len(both.Gateways) != 1 || both.Store.Endpoint != "s" ||
		both.Capacity != 9 || !both.Takes("p") || !both.Takes("o") || both.Takes("q") {
		t.Fatalf("%+v, %v", both, err)
	}
	gw.Capacity, gw.Lends = 10, []string{federation.LendsToAll}
	both, err = federation.MergeSite(both, gw)
	if err != nil || both.Region != "east" || both.Labels["a"] != "operator" || both.Cluster != "uid" || both.Capacity != 10 ||
		!both.Takes("q") {
		t.Fatalf("after the gateway's: %+v, %v", both, err)
	}
	op.Cluster = "other"
	if _, err := federation.MergeSite(both, op); !errors.Is(err, federation.ErrNameTaken) || !strings.Contains(err.Error(), "uid") {
		t.Fatalf("another cluster: %v", err)
	}
}

// TestGuardRefusesAfterARestart: a verdict lasts, even if the registry's revision has overtaken
// what was seen by then.
func TestGuardRefusesAfterARestart(t *testing.T) {
	var kept federation.GuardState
	load := func() (federation.GuardState, error) { return kept, nil }
	save := func(s federation.GuardState) error { kept = s; return nil }
	g, err := federation.NewGuard(load, save, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: 5}); err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: 4}); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("error %v, want rewound", err)
	}
	if g, err = federation.NewGuard(load, save, nil); err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 1, Revision: 9}); !errors.Is(err, federation.ErrRewound) {
		t.Fatalf("error %v, want rewound", err)
	}
	asked := g.Ask()
	if err := g.Accept(federation.Head{Cluster: 2, Revision: 9}, 5, nil, "1"); err != nil {
		t.Fatal(err)
	}
	if err := g.Observe(asked, federation.Head{Cluster: 1, Revision: 4}); !errors.Is(err, federation.ErrUnavailable) {
		t.Errorf("an answer of before the reconciliation: %v", err)
	}
	if err := g.Observe(g.Ask(), federation.Head{Cluster: 2, Revision: 10}); err != nil || g.Ask().Offset != 5 {
		t.Errorf("after it: %v", err)
	}
}
