// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-storage/weir/engine/segment"
)

// TestKeyIsNeeded: no plaintext is in objects, and no other key opens them.
func TestKeyIsNeeded(t *testing.T) {
	store := newMemory()
	m, _ := mustWrite(t, testHead, []Pair{{[]byte("SECRET"), []byte("SECRET")}}, store)
	for n, b := range store.objects {
		if bytes.Contains(b, []byte("SECRET")) {
			t.Errorf("plaintext in %s", n)
		}
	}
	other := func(uint32) (segment.DataKey, bool) { return segment.DataKey{8}, true }
	if _, err := Open(t.Context(), testHead.Volume, m.Hash(), other, store); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with another key: %v", err)
	}
	none := func(uint32) (segment.DataKey, bool) { return segment.DataKey{}, false }
	if _, err := Open(t.Context(), testHead.Volume, m.Hash(), none, store); err == nil || !strings.Contains(err.Error(), "data key 2") {
		t.Errorf("without a key: %v", err)
	}
}

// TestSaltIsOfTheMessage seals what differs in one thing, and expects another salt: two messages
// under one key would tell of each other (protocol-16).
func TestSaltIsOfTheMessage(t *testing.T) {
	s, err := newSecrets(testHead.Volume, 2, &testKey)
	if err != nil {
		t.Fatal(err)
	}
	raw := func(dst, content []byte) []byte { return append(append(dst, codecRaw), content...) }
	salts := map[string]string{}
	for what, b := range map[string]func() ([]byte, error){
		"the first":    func() ([]byte, error) { return s.seal(chunkKind, Hash{1}, nil, []byte("content"), raw) },
		"packed":       func() ([]byte, error) { return s.seal(chunkKind, Hash{1}, nil, []byte("content"), zstdForced) },
		"hash":         func() ([]byte, error) { return s.seal(chunkKind, Hash{2}, nil, []byte("content"), raw) },
		"kind":         func() ([]byte, error) { return s.seal(manifestKind, Hash{1}, nil, []byte("content"), raw) },
		"a reference":  func() ([]byte, error) { return s.seal(manifestKind, Hash{1}, []Hash{{}}, []byte("content"), raw) },
		"another one":  func() ([]byte, error) { return s.seal(manifestKind, Hash{1}, []Hash{{1}}, []byte("content"), raw) },
		"more content": func() ([]byte, error) { return s.seal(chunkKind, Hash{1}, nil, []byte("content."), raw) },
	} {
		b, err := b()
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		salt := string(p.plain[len(p.plain)-hashSize:])
		if was, ok := salts[salt]; ok {
			t.Errorf("%s and %s have one salt", what, was)
		}
		salts[salt] = what
	}
}

func zstdForced(dst, content []byte) []byte {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return e.EncodeAll(content, append(dst, codecZstd))
}

func TestNames(t *testing.T) {
	for _, k := range []kind{chunkKind, manifestKind} {
		text := name(testHead.Volume, k, Hash{1, 31: 2})
		v, got, h, err := parseName(text)
		if v != testHead.Volume || got != k || h != (Hash{1, 31: 2}) || err != nil {
			t.Errorf("%s: %x %q %x %v", text, v, got, h, err)
		}
		if _, _, _, err := segment.ParseName(text); err == nil {
			t.Errorf("%s is also the name of a segment", text)
		}
		for _, bad := range []string{"", "/", text + "0", text[1:], strings.ToUpper(text), strings.Replace(text, "/", "-", 1),
			strings.Replace(text, "-", "", 1), "0" + text, text[:36] + "/x/" + text[39:], segment.Name(testHead.Volume, 1, Hash{})} {
			if _, _, _, err := parseName(bad); err == nil {
				t.Errorf("%q was taken for a name", bad)
			}
		}
	}
}
