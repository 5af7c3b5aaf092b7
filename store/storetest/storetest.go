// SPDX-License-Identifier: Apache-2.0

// Package storetest is the suite that every store.Store passes. A second implementation's test is a
// call of Run.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-storage/weir/store"
)

// Run runs the suite; start returns an empty store and is called once per test.
func Run(t *testing.T, start func(t *testing.T) store.Store) {
	tests := []struct {
		name string
		run  func(*fixture)
	}{
		{"PutGet", putGet},
		{"Ranges", ranges},
		{"PutAgain", putAgain},
		{"Replace", replace},
		{"PutRace", putRace},
		{"PutRaceConflict", putRaceConflict},
		{"PutBody", putBody},
		{"Large", large},
		{"Stat", stat},
		{"List", list},
		{"ListMany", listMany},
		{"ListStops", listStops},
		{"Delete", remove},
		{"Names", names},
		{"Canceled", canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(&fixture{T: t, ctx: t.Context(), s: start(t)}) })
	}
}

type fixture struct {
	*testing.T
	ctx context.Context
	s   store.Store
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

func (f *fixture) put(name, data string) {
	f.Helper()
	f.ok(f.s.Put(f.ctx, name, int64(len(data)), strings.NewReader(data)))
}

func (f *fixture) has(name, data string) {
	f.Helper()
	p := make([]byte, len(data))
	f.ok(f.s.GetRange(f.ctx, name, 0, p))
	if string(p) != data {
		f.Fatalf("object %s has %.40q, want %.40q", name, p, data)
	}
	i, err := f.s.Stat(f.ctx, name)
	f.ok(err)
	if i.Size != int64(len(data)) || i.Name != name {
		f.Fatalf("stat of %s is %+v, want %d bytes", name, i, len(data))
	}
}

func (f *fixture) list(prefix string) []string {
	f.Helper()
	out := []string{}
	f.ok(f.s.List(f.ctx, prefix, func(i store.Info) error { out = append(out, i.Name); return nil }))
	return out
}

func putGet(f *fixture) {
	f.put("v1/00000001-abc", "hello")
	f.has("v1/00000001-abc", "hello")
	f.put("v1/empty", "")
	f.has("v1/empty", "")
	f.put("flat_Name.x", "y")
	f.has("flat_Name.x", "y")
	f.is(f.s.GetRange(f.ctx, "v1/none", 0, make([]byte, 1)), store.ErrNotExist)
	f.is(f.s.GetRange(f.ctx, "v1", 0, make([]byte, 1)), store.ErrNotExist)
	f.is(f.s.GetRange(f.ctx, "none/none", 0, make([]byte, 1)), store.ErrNotExist)
}

func ranges(f *fixture) {
	const data = "0123456789"
	f.put("r", data)
	f.put("empty", "")
	for off := range 12 {
		for n := 1; n <= 11; n++ {
			p := make([]byte, n)
			err := f.s.GetRange(f.ctx, "r", int64(off), p)
			if off+n > len(data) {
				f.is(err, store.ErrShort)
			} else if err != nil || string(p) != data[off:off+n] {
				f.Fatalf("range %d+%d is %q, %v", off, n, p, err)
			}
		}
	}
	f.is(f.s.GetRange(f.ctx, "empty", 0, make([]byte, 1)), store.ErrShort)
	f.is(f.s.GetRange(f.ctx, "r", -1, make([]byte, 1)), store.ErrInvalid)
	f.ok(f.s.GetRange(f.ctx, "r", 99, nil))
}

func putAgain(f *fixture) {
	f.put("v/a", "first")
	f.put("v/a", "first")
	f.put("v/a", "other") // same size: names hold hashes, so it is the same
	f.has("v/a", "first")
	f.is(f.s.Put(f.ctx, "v/a", 6, strings.NewReader("longer")), store.ErrConflict)
	f.is(f.s.Put(f.ctx, "v/a", 0, strings.NewReader("")), store.ErrConflict)
	f.has("v/a", "first")
}

// putRace: many puts of one object at once all succeed, and leave one of the bodies whole.
// replace: what is damaged gives way to what is put in its place, also of another size; what is
// absent is put; a wrong size changes nothing.
func replace(f *fixture) {
	r, ok := f.s.(store.Replacer)
	if !ok {
		f.Skip("it is no Replacer")
	}
	f.put("v/a", "damaged")
	f.ok(r.Replace(f.ctx, "v/a", 7, strings.NewReader("mended!")))
	f.has("v/a", "mended!")
	f.ok(r.Replace(f.ctx, "v/a", 4, strings.NewReader("more")))
	f.has("v/a", "more")
	f.ok(r.Replace(f.ctx, "v/b", 3, strings.NewReader("new")))
	f.has("v/b", "new")
	f.is(r.Replace(f.ctx, "v/a", 5, strings.NewReader("long")), store.ErrInvalid)
	f.has("v/a", "more")
	f.is(r.Replace(f.ctx, ".a", 0, strings.NewReader("")), store.ErrInvalid)
}

func putRace(f *fixture) {
	const racers = 8
	var wg sync.WaitGroup
	errs := make([]error, racers)
	body := func(i int) string { return strings.Repeat(string(rune('a'+i)), 100_000) }
	for i := range racers {
		wg.Go(func() { errs[i] = f.s.Put(f.ctx, "v/raced", 100_000, strings.NewReader(body(i))) })
	}
	wg.Wait()
	for _, err := range errs {
		f.ok(err)
	}
	got := make([]byte, 100_000)
	f.ok(f.s.GetRange(f.ctx, "v/raced", 0, got))
	if i := int(got[0] - 'a'); i < 0 || i >= racers || string(got) != body(i) {
		f.Fatal("the object is a mixture of bodies")
	}
}

// putRaceConflict: of puts at once with different sizes one makes the object, the others hear of
// it, and it stays.
func putRaceConflict(f *fixture) {
	const racers = 8
	for round := range 5 {
		name := fmt.Sprintf("v/conflict%d", round)
		var wg sync.WaitGroup
		errs := make([]error, racers)
		for i := range racers {
			wg.Go(func() {
				errs[i] = f.s.Put(f.ctx, name, int64(i+1), strings.NewReader(strings.Repeat(string(rune('a'+i)), i+1)))
			})
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				f.Fatalf("puts %d and %d both made the object", won, i)
			case err == nil:
				won = i
			default:
				f.is(err, store.ErrConflict)
			}
		}
		if won < 0 {
			f.Fatal("nobody made the object")
		}
		f.has(name, strings.Repeat(string(rune('a'+won)), won+1))
	}
}

// closable fails the test when a store closes or keeps a body.
type closable struct {
	*strings.Reader
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

func putBody(f *fixture) {
	r := &closable{Reader: strings.NewReader("0123456789")}
	_, err := r.Seek(4, io.SeekStart)
	f.ok(err)
	f.ok(f.s.Put(f.ctx, "b", 10, r))
	f.has("b", "0123456789") // from its start, wherever it stood
	if r.closed {
		f.Fatal("the store closed the body")
	}
	f.is(f.s.Put(f.ctx, "c", 11, strings.NewReader("0123456789")), store.ErrInvalid)
	f.is(f.s.Put(f.ctx, "c", 9, strings.NewReader("0123456789")), store.ErrInvalid)
	_, err = f.s.Stat(f.ctx, "c")
	f.is(err, store.ErrNotExist)
}

func large(f *fixture) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16) // more than S3's smallest part
	f.ok(f.s.Put(f.ctx, "v/large", int64(len(data)), bytes.NewReader(data)))
	p := make([]byte, 1<<20)
	off := len(data) - len(p)
	f.ok(f.s.GetRange(f.ctx, "v/large", int64(off), p))
	if !bytes.Equal(p, data[off:]) {
		f.Fatal("the end differs")
	}
	p = make([]byte, len(data))
	f.ok(f.s.GetRange(f.ctx, "v/large", 0, p))
	if !bytes.Equal(p, data) {
		f.Fatal("the whole differs")
	}
}

func stat(f *fixture) {
	_, err := f.s.Stat(f.ctx, "none")
	f.is(err, store.ErrNotExist)
	f.put("v/a", "x")
	i, err := f.s.Stat(f.ctx, "v/a")
	f.ok(err)
	if i.Modified.IsZero() {
		f.Fatal("no time of modification")
	}
	_, err = f.s.Stat(f.ctx, "v")
	f.is(err, store.ErrNotExist)
}

func list(f *fixture) {
	if got := f.list(""); len(got) != 0 {
		f.Fatalf("an empty store has %v", got)
	}
	all := []string{"a-b", "a.c", "a/b", "a/c/d", "a0", "b/1", "b/10", "b/2", "Z"}
	for _, n := range all {
		f.put(n, n)
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "a", "a/", "a/c", "a/c/d", "b/1", "c", "b/1/", "a/b/c", "Z"} {
		want := []string{}
		for _, n := range all {
			if strings.HasPrefix(n, prefix) {
				want = append(want, n)
			}
		}
		if got := f.list(prefix); !reflect.DeepEqual(got, want) {
			f.Errorf("list of %q is %v, want %v", prefix, got, want)
		}
	}
	f.ok(f.s.List(f.ctx, "a/c", func(i store.Info) error {
		if i.Size != 5 || i.Modified.IsZero() {
			f.Errorf("listed %+v", i)
		}
		return nil
	}))
}

// listMany is longer than a page of S3.
func listMany(f *fixture) {
	const many = 1050
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := w; i < many && errs[w] == nil; i += len(errs) {
				errs[w] = f.s.Put(f.ctx, fmt.Sprintf("v/%06d", i), 1, strings.NewReader("x"))
			}
		})
	}
	wg.Wait()
	f.ok(errors.Join(errs...))
	got := f.list("v/")
	if len(got) != many || !slices.IsSorted(got) || got[0] != "v/000000" || got[many-1] != "v/001049" {
		f.Fatalf("%d listed, want %d in order", len(got), many)
	}
}

func listStops(f *fixture) {
	f.put("a", "")
	f.put("b", "")
	enough := errors.New("enough")
	n := 0
	err := f.s.List(f.ctx, "", func(store.Info) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		f.Fatalf("stopped with %v after %d", err, n)
	}
}

func remove(f *fixture) {
	f.put("v/a", "1")
	f.put("v/b", "22")
	f.ok(f.s.Delete(f.ctx, "v/a"))
	f.ok(f.s.Delete(f.ctx, "v/a"))
	f.ok(f.s.Delete(f.ctx, "none/none"))
	_, err := f.s.Stat(f.ctx, "v/a")
	f.is(err, store.ErrNotExist)
	if got := f.list(""); !reflect.DeepEqual(got, []string{"v/b"}) {
		f.Fatalf("left are %v", got)
	}
	f.put("v/a", "333")
	f.has("v/a", "333")
	f.ok(f.s.Delete(f.ctx, "v/a"))
	f.ok(f.s.Delete(f.ctx, "v/b"))
	f.ok(f.s.Delete(f.ctx, "v")) // what was a folder
}

func names(f *fixture) {
	for _, n := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "a b", "ä", "a\x00", "a\\b",
		strings.Repeat("x", 513)} {
		f.is(f.s.Put(f.ctx, n, 1, strings.NewReader("x")), store.ErrInvalid)
		f.is(f.s.GetRange(f.ctx, n, 0, make([]byte, 1)), store.ErrInvalid)
		_, err := f.s.Stat(f.ctx, n)
		f.is(err, store.ErrInvalid)
		f.is(f.s.Delete(f.ctx, n), store.ErrInvalid)
	}
	f.put("-a_B.9/x..y", "x")
	f.has("-a_B.9/x..y", "x")
}

func canceled(f *fixture) {
	f.put("a", "x")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	f.is(f.s.Put(ctx, "b", 1, strings.NewReader("x")), context.Canceled)
	f.is(f.s.GetRange(ctx, "a", 0, make([]byte, 1)), context.Canceled)
	_, err := f.s.Stat(ctx, "a")
	f.is(err, context.Canceled)
	f.is(f.s.Delete(ctx, "a"), context.Canceled)
	f.is(f.s.List(ctx, "", func(store.Info) error { return nil }), context.Canceled)
	f.has("a", "x")
}
