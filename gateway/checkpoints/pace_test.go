// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// says is a watcher that tells of one record of a volume.
type says struct {
	federation.Watcher
	record federation.Volume
}

func (s says) Watch(_ context.Context, fn func(federation.Event) error) error {
	return fn(federation.Event{Kind: federation.KindVolume, Name: s.record.UUID, Revision: 1, Volume: &s.record})
}

// wants has the owner want that what older keys sealed is sealed anew, or not.
func (y *year) wants(reseal encryption.Reseal) {
	y.Helper()
	r := federation.Volume{UUID: y.copy.UUID, Name: "v"}
	r.Spec.Encryption.Reseal = reseal
	y.must(y.keeper.cfg.View.Watch(y.Context(), says{record: r}))
}

// follows has another data key follow.
func (y *year) follows(number uint32) {
	y.Helper()
	y.copy.Keys.Add(map[uint32]segment.DataKey{number: {byte(number)}})
	if !y.copy.Keys.Use(number) {
		y.Fatal("the key is not used")
	}
	y.log.NewSalt()
}

// older returns how many bytes are under data keys before that number.
func (y *year) older(newest uint32) (n uint64) {
	y.Helper()
	usage, err := y.engine.Usage(y.Context())
	y.must(err)
	for number, bytes := range usage.Keys {
		if number < newest {
			n += bytes
		}
	}
	return n
}

// rests has the volume be left alone until nothing happens to it any more.
func (y *year) rests() {
	y.Helper()
	for still, rounds := 0, 0; still < 20; rounds++ {
		end := y.log.End()
		y.tick()
		y.keep()
		now, err := y.engine.Checkpoints()
		y.must(err)
		if still++; y.log.End() != end || now.Made.Number < now.Asked.Number {
			still = 0
			time.Sleep(20 * time.Microsecond) // the event loop of the log is another goroutine
		}
		if rounds > 5000 {
			y.Fatal("the volume does not come to rest")
		}
	}
}

// TestResealsAtRest: what is under an older data key is sealed anew though nobody writes, whatever
// it was that held it up; and then the volume comes to rest.
func TestResealsAtRest(t *testing.T) {
	for what, x := range map[string]struct {
		before, after func(y *year)
	}{
		"it is asked for without a rotation": {
			func(y *year) { y.wants(encryption.ResealNever) }, func(y *year) { y.wants(encryption.ResealRotation) }},
		"a blind copy goes away": {
			func(y *year) { y.copy.Condemns = false }, func(y *year) { y.copy.Condemns = true }},
		"an object is damaged for a day": {
			func(y *year) {
				y.store.SetFault(func(op, name string) error {
					if op == "put" && strings.Contains(name, "/p/") {
						return &pack.ObjectError{Name: "a segment", Err: pack.ErrCorrupt}
					}
					return nil
				})
			},
			func(y *year) {
				before, err := y.engine.Checkpoints()
				y.must(err)
				for range 6 * 60 * 24 {
					y.tick()
					y.keep()
				}
				after, err := y.engine.Checkpoints()
				y.must(err)
				// About thirty. A machine that is slow against this clock loses the lead now and
				// then, and tries again at once when it has it back. Without a pause it were
				// thousands.
				if n := after.Made.Number - before.Made.Number; n == 0 || n > 200 {
					y.Errorf("%d checkpoints were made in a day for what can not be done", n)
				}
				y.store.SetFault(nil)
				y.clock.Advance(resealMost)
			}},
	} {
		t.Run(what, func(t *testing.T) {
			y := newYear(t, time.Minute, true)
			y.keeper.cfg.Due.Pack = pack.Rule{Percent: 120, Spare: 64 << 20, Write: 1 << 20, Share: 20, Small: 4 << 20, Merge: 64}
			y.keeper.cfg.Due.Bytes, y.keeper.cfg.Due.Cost = 512<<10, 0
			y.wants(encryption.ResealRotation)
			page, rng := y.file("page"), rand.NewChaCha8([32]byte{67})
			p := make([]byte, 1<<20)
			for i := range 4 {
				_, _ = rng.Read(p)
				_, err := y.engine.Write(t.Context(), volume.Request{}, page, uint64(i)<<20, p, true)
				y.must(err)
				y.must(y.log.Roll())
			}
			x.before(y)
			y.rests()
			y.follows(1)
			_, err := y.engine.Write(t.Context(), volume.Request{}, page, 0, p, true)
			y.must(err)
			y.rests()
			if now, err := y.engine.Checkpoints(); err != nil || now.Made.Key != 1 || y.older(1) == 0 {
				t.Fatalf("%+v, %d bytes are under the older key, %v", now, y.older(1), err)
			}
			x.after(y)
			y.rests()
			if n := y.older(1); n > 0 {
				t.Errorf("the volume rests, and %d bytes are under the older key", n)
			}
		})
	}
}

// TestDamagedSegmentAmongOthers: a segment that is damaged, or missing, holds up nothing but the
// pack that it would be in; a store that is away has all tried again. What is sealed anew comes
// one pack after the other, with a round for other volumes in between.
func TestDamagedSegmentAmongOthers(t *testing.T) {
	for what, x := range map[string]struct {
		damage func(b []byte) []byte
		away   bool
		want   []int // packs that are left after each sweep
	}{
		"whole":   {want: []int{2, 1, 0}},
		"damaged": {damage: func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, want: []int{1, 0}},
		"short":   {damage: func(b []byte) []byte { return b[:len(b)/2] }, want: []int{1, 0}},
		"away":    {away: true, want: []int{3, 3, 2, 1, 0}},
	} {
		t.Run(what, func(t *testing.T) {
			y := newYear(t, time.Minute, true)
			y.keeper.cfg.Due.Pack = pack.Rule{Percent: 120, Spare: 64 << 20, Write: 64 << 20, Share: 20, Small: 1, Merge: 64}
			y.wants(encryption.ResealRotation)
			page, rng := y.file("page"), rand.NewChaCha8([32]byte{67})
			p := make([]byte, 1<<20)
			for i := range 3 {
				_, _ = rng.Read(p)
				_, err := y.engine.Write(t.Context(), volume.Request{}, page, uint64(i)<<20, p, true)
				y.must(err)
				y.must(y.log.Roll())
			}
			y.follows(1)
			var is *plan
			y.until("something is planned", func() bool {
				y.tick()
				y.keeper.tendAll(t.Context(), []Copy{y.copy})
				is = y.keeper.plans[y.copy.UUID]
				now, err := y.engine.Checkpoints()
				y.must(err)
				return is != nil && is.number <= now.Made.Number && y.copy.Replica.UploadQueue() == 0
			})
			var each []engine.PackPlan
			for _, k := range is.packs[0].Kept {
				if len(k.Blocks) > 8 { // one of the three
					each = append(each, engine.PackPlan{Kept: []pack.Kept{k}, Reseals: true})
				}
			}
			if is.packs = each; len(each) != 3 {
				t.Fatalf("%d segments are planned", len(each))
			}
			first, _ := y.log.Segment(each[0].Kept[0].Seq)
			y.must(y.log.Evict(first.Seq))
			if x.damage != nil {
				y.store.Damage(first.Name, x.damage)
			}
			for i, want := range x.want {
				y.store.SetFault(func(op, name string) error {
					if x.away && i < 2 && op == "get" && name == first.Name {
						return store.ErrUnavailable
					}
					return nil
				})
				if err := y.keeper.pack(t.Context(), y.copy); (err != nil) != (x.away && i < 2) {
					t.Fatal(err)
				}
				left := 0
				if is := y.keeper.plans[y.copy.UUID]; is != nil {
					left = len(is.packs)
				}
				if left != want {
					t.Fatalf("after sweep %d, %d packs are left, want %d", i+1, left, want)
				}
			}
		})
	}
}

// TestSeldomAskedWhileTheStoreIsAway: a checkpoint that can not be made is asked for again after
// growing pauses, whyever it is due, and comes soon after the store is back.
func TestSeldomAskedWhileTheStoreIsAway(t *testing.T) {
	y := newYear(t, time.Minute, true)
	y.wants(encryption.ResealRotation)
	page := y.file("page")
	_, err := y.engine.Write(t.Context(), volume.Request{}, page, 0, []byte("text"), true)
	y.must(err)
	y.rests()
	before, err := y.engine.Checkpoints()
	y.must(err)
	y.store.SetFault(func(op, name string) error {
		if op == "put" && (strings.Contains(name, "/c/") || strings.Contains(name, "/m/")) {
			return store.ErrUnavailable
		}
		return nil
	})
	y.follows(1)
	due := y.keeper.cfg.Due
	y.keeper.cfg.Due.Bytes, y.keeper.cfg.Due.Cost = 1, 0 // what asks for one makes the next one due
	for range 6 * 60 * 6 {                               // hours
		y.tick()
		y.until("what was asked for is cut", func() bool {
			y.keep()
			now, err := y.engine.Checkpoints()
			y.must(err)
			return now.Asked.Number == now.Placed.Number && y.engine.Applied() == y.log.End()
		})
	}
	after, err := y.engine.Checkpoints()
	y.must(err)
	// After 1, 2, 4, 8 minutes, and then each ten.
	if n := after.Asked.Number - before.Asked.Number; n < 20 || n > 60 {
		t.Errorf("%d checkpoints were asked for in six hours in which none could be made", n)
	}
	if after.Made != before.Made {
		t.Fatalf("%+v is made, and was %+v before", after.Made, before.Made)
	}
	y.store.SetFault(nil)
	y.keeper.cfg.Due = due
	y.clock.Advance(askMost)
	y.rests()
	if now, err := y.engine.Checkpoints(); err != nil || now.Made.Number <= after.Asked.Number {
		t.Errorf("with the store back %+v is made, %v", now.Made, err)
	}
}

// TestWhatIsDamaged: only what says that bytes are wrong or missing is damage. A store that is
// away, also in the middle of an answer, says nothing of the object.
func TestWhatIsDamaged(t *testing.T) {
	for _, x := range []struct {
		why error
		is  bool
	}{
		{pack.ErrCorrupt, true},
		{store.ErrNotExist, true},
		{io.ErrUnexpectedEOF, true}, // of a file
		{store.ErrUnavailable, false},
		{fmt.Errorf("%w: the answer broke off: %w", store.ErrUnavailable, io.ErrUnexpectedEOF), false},
	} {
		if name, is := damaged(&pack.ObjectError{Name: "object", Err: x.why}); is != x.is || name != "object" {
			t.Errorf("%v: %q, %t", x.why, name, is)
		}
	}
}
