// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zeebo/blake3"
)

// wrong returns what is wrong with what was read of damaged objects: it must be an error that names
// an object, and the pairs before it must be right.
func wrong(got, want []Pair, err error, name string) string {
	var object *ObjectError
	switch {
	case err == nil:
		return "no error"
	case !errors.As(err, &object) || object.Name != name:
		return "the error does not name the object: " + err.Error()
	case len(got) > len(want) || !samePairs(got, want[:len(got)]):
		return "wrong pairs"
	}
	return ""
}

// resum corrects the last hash of an object, as who forges an object would.
func resum(b []byte) []byte {
	sum := blake3.Sum256(b[:len(b)-hashSize])
	copy(b[len(b)-hashSize:], sum[:])
	return b
}

// TestDamage damages each byte of each object of a small checkpoint, with its last hash corrected
// and not, and cuts each object at each length.
func TestDamage(t *testing.T) {
	pairs := randomPairs(rand.New(rand.NewPCG(1, 9)), 12)
	store := newMemory()
	w, err := newWriter(testHead, &testKey, store)
	if err != nil {
		t.Fatal(err)
	}
	w.cut.shape = shape{min: 64, max: 512, bits: 9} // so that it has several chunks
	m, _, err := w.write(t.Context(), each(pairs))
	if err != nil || len(m.Chunks) < 3 {
		t.Fatalf("%d chunks, %v", len(m.Chunks), err)
	}
	for _, n := range m.Names() {
		whole := store.objects[n]
		try := func(what string, at int, b []byte, checked bool) {
			store.objects[n] = b
			_, got, err := readAll(t.Context(), m.Hash(), store)
			if bad := wrong(got, pairs, err, n); bad != "" {
				t.Fatalf("%s: %s at %d: %s", n, what, at, bad)
			}
			if !errors.Is(err, ErrCorrupt) {
				if b != nil && !strings.Contains(err.Error(), "data key") {
					t.Fatalf("%s: %s at %d: %v", n, what, at, err)
				}
			}
			if _, err := Check(n, b); checked && err == nil {
				t.Fatalf("%s: %s at %d: a host without a key does not see it", n, what, at)
			}
		}
		for i := range whole {
			b := bytes.Clone(whole)
			b[i] ^= 1 << (i % 8)
			try("bit", i, b, true)
			if i < len(b)-hashSize {
				try("forged bit", i, resum(b), false)
			}
			try("length", i, whole[:i:i], true)
			if i >= hashSize {
				try("forged length", i, resum(bytes.Clone(whole[:i])), false)
			}
		}
		try("more", len(whole), append(bytes.Clone(whole), 0), true)
		try("more", len(whole), resum(append(bytes.Clone(whole), make([]byte, hashSize)...)), false)
		try("missing", 0, nil, true)
		// Another object of the checkpoint under its name.
		for _, other := range m.Names() {
			if other != n {
				try("another object", 0, bytes.Clone(store.objects[other]), true)
			}
		}
		store.objects[n] = whole
		refers, err := Check(n, whole)
		if want := map[bool]int{false: 0, true: len(m.Chunks)}[strings.Contains(n, "/m/")]; err != nil || len(refers) != want {
			t.Fatalf("%s refers to %q, %v", n, refers, err)
		}
	}
	if _, got, err := readAll(t.Context(), m.Hash(), store); err != nil || !samePairs(got, pairs) {
		t.Fatal(err)
	}
}

// TestForgedContents: who has the key, or a bug, makes objects whose hashes are right and whose
// content is not. They are errors too.
func TestForgedContents(t *testing.T) {
	s, err := newSecrets(testHead.Volume, testHead.Key, &testKey)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(shared int, key, value string) []byte {
		return appendPair(nil, shared, Pair{[]byte(key), []byte(value)})
	}
	chunk := func(parts ...[]byte) []byte { return append([]byte{contentVersion}, bytes.Join(parts, nil)...) }
	good := chunk(pair(0, "a", "1"), pair(1, "ab", "2"), pair(0, "b", "3"))
	forge := func(contents [][]byte, list func([]Chunk)) error {
		store := newMemory()
		m := &Manifest{Head: testHead}
		for _, c := range contents {
			h := s.hash(chunkKind, nil, c)
			store.objects[name(s.volume, chunkKind, h)] = must(s.seal(chunkKind, h, nil, c, fast))
			entry := Chunk{Hash: h, First: []byte("a"), Pairs: 3, Bytes: uint64(len(c))}
			if pairs, err := decodeChunk(c); err == nil {
				entry.First, entry.Pairs = pairs[0].Key, uint64(len(pairs))
			}
			m.Chunks = append(m.Chunks, entry)
		}
		if list != nil {
			list(m.Chunks)
		}
		content := m.appendContent(nil)
		h := s.hash(manifestKind, m.refs(), content)
		store.objects[name(s.volume, manifestKind, h)] = must(s.seal(manifestKind, h, m.refs(), content, fast))
		_, _, err := readAll(t.Context(), h, store)
		return err
	}
	if err := forge([][]byte{good, chunk(pair(0, "c", "1"))}, nil); err != nil {
		t.Fatal(err)
	}
	for what, contents := range map[string][][]byte{
		"no pairs":             {chunk()},
		"nothing":              {nil},
		"version":              {append([]byte{9}, good[1:]...)},
		"order":                {chunk(pair(0, "b", "1"), pair(0, "a", "2"))},
		"twice":                {chunk(pair(0, "b", "1"), pair(0, "b", "2"))},
		"twice, shared":        {chunk(pair(0, "b", "1"), []byte{1, 0, 0})},
		"shared too short":     {chunk(pair(0, "ab", "1"), pair(0, "ac", "2"))},
		"shared too long":      {chunk(pair(0, "ab", "1"), []byte{3, 1, 0, 'x'})},
		"empty key":            {chunk([]byte{0, 0, 1, 'x'})},
		"cut":                  {good[:len(good)-1]},
		"more":                 {append(bytes.Clone(good), 0)},
		"number too long":      {chunk([]byte{0x80, 0, 1, 0, 'x'})},
		"order of chunks":      {good, chunk(pair(0, "aa", "1"))},
		"twice in two chunks":  {good, chunk(pair(0, "b", "1"))},
		"chunks in order only": {chunk(pair(0, "b", "1")), chunk(pair(0, "a", "1"))},
	} {
		if err := forge(contents, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, list := range map[string]func([]Chunk){
		"pairs":    func(c []Chunk) { c[0].Pairs++ },
		"bytes":    func(c []Chunk) { c[0].Bytes++ },
		"first":    func(c []Chunk) { c[0].First = []byte("A") },
		"no pairs": func(c []Chunk) { c[0].Pairs = 0 },
		"no key":   func(c []Chunk) { c[0].First = nil },
	} {
		if err := forge([][]byte{good}, list); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s in the manifest: %v", what, err)
		}
	}
}

// TestSealedUnderAnotherName: the tag of an object is right, its name is that of another content.
func TestSealedUnderAnotherName(t *testing.T) {
	pairs := []Pair{{[]byte("a"), []byte("1")}, {[]byte("b"), []byte("2")}}
	store := newMemory()
	m, _ := mustWrite(t, testHead, pairs, store)
	other := append([]byte{contentVersion}, appendPair(appendPair(nil, 0, pairs[0]), 0, Pair{[]byte("b"), []byte("3")})...)
	object := m.Names()[0]
	store.objects[object] = must(m.secret.seal(chunkKind, m.Chunks[0].Hash, nil, other, fast))
	if _, err := Check(object, store.objects[object]); err != nil {
		t.Fatal(err) // else the test shows nothing
	}
	_, got, err := readAll(t.Context(), m.Hash(), store)
	if bad := wrong(got, pairs, err, object); bad != "" {
		t.Fatal(bad)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzObject(f *testing.F) {
	store := newMemory()
	m, _ := mustWrite(f, testHead, []Pair{{[]byte("a"), []byte("1")}, {[]byte("b"), []byte("2")}}, store)
	mustWrite(f, testHead, []Pair{{[]byte("i\x00\x01"), []byte("v")}}, store) // as in testdata
	for _, b := range store.objects {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{bytes.Clone(b), resum(append(bytes.Clone(b), make([]byte, hashSize)...))} {
			p, err := parse(b)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			n := name(p.volume, p.kind, p.hash)
			known := bytes.Equal(store.objects[n], b)
			if _, err := Check(n, b); err != nil {
				t.Fatalf("it parses, but: %v", err)
			}
			if content, err := m.secret.open(p); err == nil && !known {
				t.Fatalf("forged: %x", content)
			}
		}
	})
}

func FuzzChunk(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1, 'a', '1', 1, 1, 0, 'b', 0, 1, 2, 'b', '1', '2'})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		pairs, err := decodeChunk(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := []byte{contentVersion}
		var last []byte
		for i, p := range pairs {
			if err := check(uint64(i), last, p); err != nil {
				t.Fatal(err)
			}
			again = appendPair(again, sharedPrefix(last, p.Key), p)
			last = p.Key
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x encodes as %x", b, again)
		}
	})
}

func FuzzManifest(f *testing.F) {
	m := &Manifest{Head: testHead, Chunks: []Chunk{{First: []byte("a"), Pairs: 2, Bytes: 300}, {First: []byte("b"), Pairs: 1, Bytes: 4}}}
	f.Add(m.appendContent(nil), 2)
	f.Add((&Manifest{}).appendContent(nil), 0)
	m.Changes = []Chunk{{First: []byte("aa"), Pairs: 1, Bytes: 5}}
	f.Add(m.appendContent(nil), 3)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > 1000 {
			return
		}
		m, err := decodeManifest(b, make([]Hash, n))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := m.appendContent(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x encodes as %x", b, again)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(fast(nil, bytes.Repeat([]byte("content "), 40)))
	f.Add(fast(nil, []byte("c")))
	f.Fuzz(func(t *testing.T, b []byte) {
		content, err := unpack(b)
		if err != nil && !errors.Is(err, ErrCorrupt) || len(content) > maxContent {
			t.Fatal(len(content), err)
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add(name(testHead.Volume, chunkKind, Hash{1}))
	f.Add(name(testHead.Volume, manifestKind, Hash{2}))
	f.Fuzz(func(t *testing.T, text string) {
		if v, k, h, err := parseName(text); err == nil && name(v, k, h) != text {
			t.Fatal(text)
		}
	})
}
