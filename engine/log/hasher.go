// SPDX-License-Identifier: Apache-2.0

package log

import (
	"sync"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// hasher computes the hash of a segment as it grows, while the writer goes on. It has a goroutine
// only while there is something to hash.
type hasher struct {
	mu      sync.Mutex
	fewer   *sync.Cond // uses mu; signals that waiting has shrunk
	hash    *blake3.Hasher
	waiting []hashing // in order
	size    int       // of waiting, and of what is being hashed
	running bool
}

const (
	// hashInline is how many bytes are hashed at once rather than by the goroutine.
	hashInline = 16 << 10
	// hashBehind is how many bytes may wait; the writer waits while there are more.
	hashBehind = 4 << 20
)

// hashing is bytes that wait to be hashed.
type hashing struct {
	b  []byte
	of *chunk // whose memory they are; nil: nobody wants to know
}

// newHasher goes on with what h has.
func newHasher(h *blake3.Hasher) *hasher {
	n := &hasher{hash: h}
	n.fewer = sync.NewCond(&n.mu)
	return n
}

// add hashes b after what was added before. b must not change until then, which of, if not nil, is
// told by its done. The caller adds in order.
func (h *hasher) add(b []byte, of *chunk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.running && len(b) <= hashInline {
		_, _ = h.hash.Write(b) // never fails
		if of != nil {
			of.done()
		}
		return
	}
	for h.size > hashBehind {
		h.fewer.Wait()
	}
	h.waiting, h.size = append(h.waiting, hashing{b, of}), h.size+len(b)
	if !h.running {
		h.running = true
		go h.run()
	}
}

func (h *hasher) run() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.waiting) > 0 {
		some := h.waiting
		h.waiting = nil
		h.mu.Unlock()
		n := 0
		for i, w := range some {
			_, _ = h.hash.Write(w.b) // never fails; nobody else uses it while running is set
			n += len(w.b)
			if some[i] = (hashing{}); w.of != nil {
				w.of.done()
			}
		}
		h.mu.Lock()
		h.size -= n
		h.fewer.Broadcast()
	}
	h.running = false
	h.fewer.Broadcast()
}

// sum returns the hash of all that was added.
func (h *hasher) sum() segment.Hash {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.running {
		h.fewer.Wait()
	}
	return sum(h.hash)
}
