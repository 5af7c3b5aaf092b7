// SPDX-License-Identifier: Apache-2.0

package memvol_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
	"github.com/weir-storage/weir/volume/volumetest"
)

func TestConformance(t *testing.T) {
	volumetest.Run(t, func(*testing.T) volumetest.Subject {
		v := memvol.New(volume.ID{1})
		return volumetest.Subject{
			Open:        func() volume.Volume { return v },
			Restart:     func() volume.Volume { v.Crash(); return v },
			Small:       func(bytes uint64) volume.Volume { return memvol.New(volume.ID{2}, memvol.WithSize(bytes, 1000)) },
			SetReadOnly: v.SetReadOnly,
			Trash: func() volume.Volume {
				v := memvol.New(volume.ID{3})
				v.SetTrash(true)
				return v
			},
		}
	})
}

func create(t *testing.T, v *memvol.Volume, name string) volume.Handle {
	t.Helper()
	c, err := v.Create(t.Context(), volume.Request{}, volume.Root, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	return c.Attr.Handle
}

func write(t *testing.T, v *memvol.Volume, h volume.Handle, off uint64, data string, stable bool) volume.Written {
	t.Helper()
	w, err := v.Write(t.Context(), volume.Request{}, h, off, []byte(data), stable)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestCrashLosesUnstableData(t *testing.T) {
	v := memvol.New(volume.ID{1})
	f := create(t, v, "f")
	first := write(t, v, f, 0, "0123456789", true)
	write(t, v, f, 5, "xxx", false)
	last := write(t, v, f, 8000, "far", false)
	if err := v.Hold(f); err != nil {
		t.Fatal(err)
	}
	v.Crash()
	a, err := v.GetAttr(t.Context(), volume.Request{}, f)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	n, _, err := v.Read(t.Context(), volume.Request{}, f, 0, p)
	if err != nil || string(p[:n]) != "0123456789" {
		t.Errorf("content is %q, %v", p[:n], err)
	}
	if a.Size != 10 || a.Used != 10 || !a.Mtime.Equal(first.Attr.Mtime) || a.Change <= last.Attr.Change || a.Change>>40 != 2 {
		t.Errorf("attributes are %+v", a)
	}
	if w := write(t, v, f, 0, "", true); w.Verifier == first.Verifier {
		t.Error("the verifier did not change")
	}
	if s, _ := v.Space(t.Context()); s.TotalBytes-s.FreeBytes != 10 {
		t.Errorf("%d bytes are in use, want 10", s.TotalBytes-s.FreeBytes)
	}
	if err := v.SetEpoch(2); err == nil {
		t.Error("the epoch went back")
	}
	if err := v.SetEpoch(9); err != nil || write(t, v, f, 0, "y", true).Attr.Change>>40 != 9 {
		t.Errorf("SetEpoch: %v", err)
	}
	if g := create(t, v, "g"); g.Gen != 9 {
		t.Errorf("a file of epoch 9 has generation %d", g.Gen)
	}
}

func TestGraceAndGateways(t *testing.T) {
	v := memvol.New(volume.ID{1})
	f := create(t, v, "f")
	l := volume.Lock{Owner: volume.LockOwner{Gateway: "g", Owner: "o"}, End: 9, Exclusive: true}
	for _, tc := range []struct {
		grace   memvol.Grace
		reclaim bool
		want    error
	}{
		{memvol.GraceNone, false, nil}, {memvol.GraceNone, true, nil},
		{memvol.GraceOn, false, volume.ErrGrace}, {memvol.GraceOn, true, nil},
		{memvol.GraceOver, true, volume.ErrNoGrace}, {memvol.GraceOver, false, nil},
	} {
		v.SetGrace(tc.grace)
		if err := v.SetLock(t.Context(), volume.Request{}, f, l, tc.reclaim); !errors.Is(err, tc.want) {
			t.Errorf("grace %d, reclaim %v: %v, want %v", tc.grace, tc.reclaim, err, tc.want)
		}
	}
	count := func() (n int) {
		for _, locks := range v.Locks() {
			n += len(locks)
		}
		return n
	}
	if count() != 1 {
		t.Errorf("%d locks are held", count())
	}
	v.ReleaseGateway("another")
	v.ReleaseGateway("g")
	if count() != 0 {
		t.Errorf("%d locks are held after their gateway went away", count())
	}
}

func TestOptions(t *testing.T) {
	now := time.Unix(77, 0)
	var asked []string
	v := memvol.New(volume.ID{1},
		memvol.WithClock(func() time.Time { return now }), memvol.WithEpoch(5), memvol.WithRoot(0o700, 3, 4), memvol.WithSize(100, 2),
		memvol.WithBefore(func(op string, _ volume.Handle) error {
			asked = append(asked, op)
			if op == "remove" {
				return volume.ErrDelay
			}
			return nil
		}))
	a, err := v.GetAttr(t.Context(), volume.Request{}, volume.Root)
	if err != nil || a.Mode != 0o700 || a.UID != 3 || a.GID != 4 || !a.Mtime.Equal(now) || a.Change>>40 != 5 {
		t.Errorf("the root has %+v, %v", a, err)
	}
	f := create(t, v, "f")
	if _, err := v.Create(t.Context(), volume.Request{}, volume.Root, "g",
		volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("a third inode: %v", err)
	}
	if _, err := v.Write(t.Context(), volume.Request{}, f, 0, make([]byte, 101), true); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("101 bytes: %v", err)
	}
	r := volume.Request{ID: volume.OpID{Slot: "s", Seq: 1}}
	if _, err := v.Remove(t.Context(), r, volume.Root, "f"); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("remove: %v", err)
	}
	if want := []string{"getattr", "create", "create", "write", "remove"}; !slices.Equal(asked, want) {
		t.Errorf("operations seen: %v, want %v", asked, want)
	}
}
