// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// repeats is a source of randomness that returns the same to each machine.
type repeats struct{ n byte }

func (r *repeats) Read(p []byte) (int, error) {
	for i := range p {
		r.n++
		p[i] = r.n
	}
	return len(p), nil
}

// TestRandomOfAPicture: two machines that were resumed from one picture get other random bytes if
// either clock differs, though their source repeats itself.
func TestRandomOfAPicture(t *testing.T) {
	draw := func(wall, boot time.Duration) []byte {
		b := make([]byte, 80) // more than one hash
		r := Random(&repeats{}, func() time.Time { return time.Unix(0, int64(wall)) }, func() time.Duration { return boot })
		if n, err := io.ReadFull(r, b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		return b
	}
	first := draw(1, 1)
	if !bytes.Equal(first, draw(1, 1)) {
		t.Fatal("the same source and the same clocks return something else")
	}
	for what, other := range map[string][]byte{"wall clock": draw(2, 1), "clock since boot": draw(1, 2)} {
		for i := range len(first) / 16 {
			if at := first[16*i : 16*i+16]; bytes.Contains(other, at) {
				t.Errorf("with another %s, bytes %d to %d are the same", what, 16*i, 16*i+16)
			}
		}
	}
	failed := errors.New("no randomness")
	source := io.MultiReader(bytes.NewReader(make([]byte, 40)), errorReader{failed})
	if _, err := Random(source, time.Now, Boottime).Read(first); !errors.Is(err, failed) {
		t.Error("a source that fails is passed over:", err)
	}
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }
