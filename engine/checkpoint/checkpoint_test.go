// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-storage/weir/engine/segment"
)

var (
	testKey  = segment.DataKey{1, 2, 3}
	testHead = Head{Volume: segment.VolumeID{0: 7, 15: 9}, At: segment.Position{Seq: 5, Off: 4711}, Epoch: 3, Key: 2}
)

// testKeys knows the one data key of the tests.
func testKeys(number uint32) (segment.DataKey, bool) { return testKey, number == testHead.Key }

// memory is Objects in memory.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    int
	put     func(name string) error // nil: all goes well
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

func (m *memory) Has(_ context.Context, name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name] != nil, nil
}

func (m *memory) Put(_ context.Context, name string, object []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.put != nil {
		if err := m.put(name); err != nil {
			return err
		}
	}
	m.puts++
	if m.objects[name] == nil {
		m.objects[name] = bytes.Clone(object)
	}
	return nil
}

var errMissing = errors.New("no such object")

func (m *memory) Get(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.objects[name]
	if b == nil {
		return nil, errMissing
	}
	return bytes.Clone(b), nil
}

// each iterates over sorted pairs. It overwrites each pair when the next is asked for, as an
// iterator of a database may.
func each(pairs []Pair) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		for _, p := range pairs {
			key, value := bytes.Clone(p.Key), bytes.Clone(p.Value)
			if !yield(Pair{key, value}, nil) {
				return
			}
			clear(key)
			clear(value)
		}
	}
}

func sorted(m map[string]string) []Pair {
	var pairs []Pair
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, Pair{[]byte(k), []byte(m[k])})
	}
	return pairs
}

func mustWrite(t testing.TB, head Head, pairs []Pair, to Objects) (*Manifest, Stats) {
	t.Helper()
	m, stats, err := Write(t.Context(), head, &testKey, each(pairs), to)
	if err != nil {
		t.Fatal(err)
	}
	return m, stats
}

// readAll opens and reads a checkpoint.
func readAll(ctx context.Context, hash Hash, from Objects) (*Manifest, []Pair, error) {
	m, err := Open(ctx, testHead.Volume, hash, testKeys, from)
	if err != nil {
		return nil, nil, err
	}
	var pairs []Pair
	for p, err := range m.ReadPairs(ctx, from) {
		if err != nil {
			return m, pairs, err
		}
		pairs = append(pairs, p)
	}
	return m, pairs, nil
}

func samePairs(a, b []Pair) bool {
	return slices.EqualFunc(a, b, func(p, q Pair) bool { return bytes.Equal(p.Key, q.Key) && bytes.Equal(p.Value, q.Value) })
}

// randomPairs makes n pairs, of which some are large.
func randomPairs(rng *rand.Rand, n int) []Pair {
	all := map[string]string{}
	for len(all) < n {
		k := make([]byte, 1+rng.IntN(40))
		for i := range k {
			k[i] = byte(rng.IntN(4)) // long common prefixes
		}
		size := rng.IntN(200)
		switch rng.IntN(200) {
		case 0:
			size = rng.IntN(64 << 10)
		case 1:
			size = 0
		}
		v := make([]byte, size)
		for i := range v {
			v[i] = byte(rng.Uint32() >> 28)
		}
		all[string(k)] = string(v)
	}
	return sorted(all)
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := rng.IntN(3000) * rng.IntN(3)
		if n > 0 && seed%2 == 0 {
			n = 1 + int(seed)
		}
		pairs := randomPairs(rng, n)
		store := newMemory()
		m, stats := mustWrite(t, testHead, pairs, store)
		if m.Head != testHead || m.Pairs != uint64(len(pairs)) || stats.Chunks != len(m.Chunks) || stats.Uploaded != len(m.Chunks) {
			t.Fatalf("seed %d: manifest %+v, stats %+v, of %d pairs", seed, m.Head, stats, len(pairs))
		}
		opened, got, err := readAll(t.Context(), m.Hash(), store)
		if err != nil || !samePairs(pairs, got) {
			t.Fatalf("seed %d: %d pairs of %d, %v", seed, len(got), len(pairs), err)
		}
		if len(m.Chunks) > 0 && !reflect.DeepEqual(opened, m) {
			t.Fatalf("seed %d: opened\n%+v\nwritten\n%+v", seed, opened, m)
		}
		if want := slices.Sorted(maps.Keys(store.objects)); !slices.Equal(slices.Sorted(slices.Values(m.Names())), want) {
			t.Fatalf("seed %d: names %q, objects %q", seed, m.Names(), want)
		}
	}
}

func TestSizesOfChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	pairs := randomPairs(rng, 40000)
	big := make([]byte, MaxPair-1)
	pairs = append(pairs, Pair{[]byte{9}, big}, Pair{[]byte{10}, []byte{1}})
	m, _ := mustWrite(t, testHead, pairs, newMemory())
	small := 0
	for i, c := range m.Chunks[:len(m.Chunks)-1] {
		if c.Bytes > uint64(standard.max) && c.Pairs > 1 {
			t.Errorf("chunk %d has %d bytes", i, c.Bytes)
		}
		if c.Bytes < uint64(standard.min) {
			small++
		}
	}
	if small > 1 { // the one before the large pair may be small
		t.Errorf("%d of %d chunks are small", small, len(m.Chunks))
	}
}

// TestDeterminism writes the same pairs under other circumstances: by another compressor, into a
// store that has a part, and with as many processors as there are or one.
func TestDeterminism(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(3, 4)), 12000)
	first := newMemory()
	want, _ := mustWrite(t, testHead, pairs, first)
	again := newMemory()
	if m, _ := mustWrite(t, testHead, pairs, again); !reflect.DeepEqual(m, want) || !reflect.DeepEqual(first.objects, again.objects) {
		t.Fatal("two writes differ")
	}
	for level := zstd.SpeedFastest; level <= zstd.SpeedBestCompression; level++ {
		store := newMemory()
		w, err := newWriter(testHead, &testKey, store)
		if err != nil {
			t.Fatal(err)
		}
		w.pack = zstdPacker(level)
		m, _, err := w.write(t.Context(), each(pairs))
		if err != nil || !reflect.DeepEqual(m, want) {
			t.Fatalf("level %s: another manifest, %v", level, err)
		}
		if level != zstd.SpeedFastest && reflect.DeepEqual(first.objects, store.objects) {
			t.Fatalf("level %s made the same bytes: the test shows nothing", level)
		}
		// Chunks of several releases make one checkpoint.
		for i, n := range m.Names() {
			if i%2 == 0 {
				store.objects[n] = first.objects[n]
			}
		}
		if _, got, err := readAll(t.Context(), want.Hash(), store); err != nil || !samePairs(got, pairs) {
			t.Fatalf("level %s: %d pairs, %v", level, len(got), err)
		}
	}
	part := newMemory()
	for i, n := range want.Names() {
		if i%3 == 0 {
			part.objects[n] = first.objects[n]
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	had := len(part.objects)
	if m, stats := mustWrite(t, testHead, pairs, part); !reflect.DeepEqual(m, want) || stats.Uploaded != len(m.Chunks)-had {
		t.Fatalf("into a store that has %d objects: %+v", had, stats)
	}
}

// TestHashIsOfEverything changes one thing at a time, and expects another hash.
func TestHashIsOfEverything(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(3, 4)), 50)
	hashes := map[Hash]string{}
	try := func(what string, head Head, key segment.DataKey, pairs []Pair) {
		m, _, err := Write(t.Context(), head, &key, each(pairs), newMemory())
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := hashes[m.Hash()]; ok {
			t.Errorf("%s: the hash is that of %s", what, was)
		}
		hashes[m.Hash()] = what
	}
	try("the first", testHead, testKey, pairs)
	for what, change := range map[string]func(*Head){
		"volume": func(h *Head) { h.Volume[3]++ }, "sequence": func(h *Head) { h.At.Seq++ }, "offset": func(h *Head) { h.At.Off++ },
		"epoch": func(h *Head) { h.Epoch++ },
	} {
		head := testHead
		change(&head)
		try(what, head, testKey, pairs)
	}
	try("key", testHead, segment.DataKey{9}, pairs)
	try("no pairs", testHead, testKey, nil)
	try("one less", testHead, testKey, pairs[1:])
	changed := slices.Clone(pairs)
	changed[20].Value = append(bytes.Clone(changed[20].Value), 0)
	try("a value", testHead, testKey, changed)
}

// TestFormat compares with what the first release made. Names must never change, and what was put
// must be read for ever.
func TestFormat(t *testing.T) {
	var pairs []Pair
	for i := range 20000 {
		pairs = append(pairs, Pair{fmt.Appendf(nil, "i%08d", i), fmt.Appendf(nil, "value %d of some length %d", i*i, i)})
	}
	m, _ := mustWrite(t, testHead, pairs, newMemory())
	var b strings.Builder
	for _, n := range m.Names() {
		b.WriteString(n + "\n")
	}
	golden(t, "testdata/names.txt", b.String())

	few := newMemory()
	m, _ = mustWrite(t, testHead, pairs[:3], few)
	b.Reset()
	for _, n := range m.Names() {
		fmt.Fprintf(&b, "%s %x\n", n, few.objects[n])
	}
	text := golden(t, "testdata/objects.hex", "")
	store := newMemory()
	for line := range strings.Lines(text) {
		n, object, _ := strings.Cut(strings.TrimSpace(line), " ")
		bin, err := hex.DecodeString(object)
		if err != nil {
			t.Fatal(err)
		}
		store.objects[n] = bin
	}
	if _, got, err := readAll(t.Context(), m.Hash(), store); err != nil || !samePairs(got, pairs[:3]) {
		t.Fatalf("what an earlier release put: %d pairs, %v; this one puts\n%s", len(got), err, b.String())
	}
}

// golden returns the text of a file. If want is not empty, it must be that.
func golden(t *testing.T, file, want string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil || want != "" && string(b) != want {
		t.Fatalf("%s: %v; this release makes\n%s", file, err, want)
	}
	return string(b)
}

func TestBadPairs(t *testing.T) {
	for what, pairs := range map[string][]Pair{
		"comes after": {{[]byte("b"), nil}, {[]byte("a"), nil}},
		"each key":    {{[]byte("b"), nil}, {[]byte("b"), nil}},
		"come after":  {{[]byte("ab"), nil}, {[]byte("a"), nil}},
		"empty key":   {{nil, nil}},
		"at most":     {{[]byte("b"), make([]byte, MaxPair)}},
	} {
		store := newMemory()
		_, _, err := Write(t.Context(), testHead, &testKey, each(pairs), store)
		what = strings.Replace(what, "comes after", "come after", 1)
		if err == nil || !strings.Contains(err.Error(), what) || len(store.objects) > 0 {
			t.Errorf("%q: %v, %d objects", what, err, len(store.objects))
		}
	}
	// Across the border of two chunks, too.
	pairs := randomPairs(rand.New(rand.NewPCG(5, 5)), 5000)
	m, _ := mustWrite(t, testHead, pairs, newMemory())
	at := int(m.Chunks[0].Pairs)
	pairs = slices.Insert(pairs, at, pairs[at-1])
	if _, _, err := Write(t.Context(), testHead, &testKey, each(pairs), newMemory()); err == nil {
		t.Error("a key that is twice, on both sides of a border, was taken")
	}
}

// TestErrorsAreToldFromAnywhere: an error of the pairs or of the store ends a Write.
func TestErrorsAreToldFromAnywhere(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(5, 6)), 9000)
	whole, _ := mustWrite(t, testHead, pairs, newMemory())
	broken := errors.New("broken")
	for at := range len(whole.Chunks) + 1 {
		store := newMemory()
		n := 0
		store.put = func(string) error {
			if n++; n > at {
				return broken
			}
			return nil
		}
		_, _, err := Write(t.Context(), testHead, &testKey, each(pairs), store)
		var object *ObjectError
		if !errors.Is(err, broken) || !errors.As(err, &object) {
			t.Fatalf("put %d fails: %v", at, err)
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(store.objects)), func(n string) bool { return strings.Contains(n, "/m/") }) {
			t.Fatalf("put %d fails: the manifest is there", at)
		}
		had := len(store.objects)
		store.put = nil
		m, stats := mustWrite(t, testHead, pairs, store)
		if m.Hash() != whole.Hash() || stats.Uploaded != len(m.Chunks)-had {
			t.Fatalf("after put %d failed: %+v, had %d of %d", at, stats, had, len(m.Chunks))
		}
		if _, got, err := readAll(t.Context(), m.Hash(), store); err != nil || !samePairs(got, pairs) {
			t.Fatal(err)
		}
	}
	failing := func(yield func(Pair, error) bool) {
		for p, err := range each(pairs[:4000]) {
			if !yield(p, err) {
				return
			}
		}
		yield(Pair{}, broken)
	}
	store := newMemory()
	if _, _, err := Write(t.Context(), testHead, &testKey, failing, store); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Write(ctx, testHead, &testKey, each(pairs), store); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestManifestIsLast: whenever an object is put, all that it refers to is there (checkpoint-2).
func TestManifestIsLast(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(5, 6)), 9000)
	store := newMemory()
	var order []string
	store.put = func(name string) error {
		order = append(order, name)
		return nil
	}
	m, _ := mustWrite(t, testHead, pairs, store)
	if last := m.Names()[len(m.Chunks)]; order[len(order)-1] != last || slices.Index(order, last) != len(m.Chunks) {
		t.Fatalf("%s is not put last of %d", last, len(order))
	}
}

func TestDiff(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(8, 6)), 9000)
	store := newMemory()
	former, _ := mustWrite(t, testHead, pairs, store)
	pairs[4000].Value = []byte("other")
	head := testHead
	head.At.Off++
	m, stats := mustWrite(t, head, pairs, store)
	gone := m.Diff(former)
	if len(gone) != 2 || stats.Uploaded != 1 {
		t.Fatalf("gone: %q, %+v", gone, stats)
	}
	for _, n := range gone {
		delete(store.objects, n)
	}
	if _, got, err := readAll(t.Context(), m.Hash(), store); err != nil || !samePairs(got, pairs) {
		t.Fatal(err)
	}
	if d := m.Diff(m); len(d) > 0 {
		t.Fatalf("from itself: %q", d)
	}
}
