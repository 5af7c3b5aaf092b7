// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// rowsModel is a store whose views use rows, step by step.
type rowsModel struct {
	rows   rows
	store  map[string]string
	batch  map[string]string // that is being applied, and may be in the store; "" deletes
	ranged bool              // the batch deletes a range
	next   uint64
}

// rowsView is one view of it.
type rowsView struct {
	*rowsOf
	has    map[string]string // what the store had; nil: it reads the store at each call
	hidden map[string]string // the overlay answers for these keys
}

func (m *rowsModel) view(live, home bool) rowsView {
	v := rowsView{rowsOf: m.rows.view(live), hidden: map[string]string{}}
	if home {
		v.hidden = maps.Clone(m.batch)
	}
	if !live {
		v.has = maps.Clone(m.store)
	}
	return v
}

// TestRowsAreTheViews: whatever is applied meanwhile, a view gets from the rows what its store has.
func TestRowsAreTheViews(t *testing.T) {
	for seed := range uint64(200) {
		rng := mathrand.New(mathrand.NewPCG(seed, 1))
		m := &rowsModel{store: map[string]string{}}
		m.rows.cache = newRowCache(16 * 2000)
		number := func() uint64 { m.next++; return m.next }
		var views []rowsView
		key := func() string { return string(meta.InodeKey(rng.Uint64N(30))) }
		hits := 0
		for step := range 2000 {
			switch r := rng.IntN(20); {
			case r == 0 && m.batch == nil:
				// A live view holds the turn: its overlay has all that is applied meanwhile.
				views = slices.DeleteFunc(views, func(v rowsView) bool { return v.has == nil })
				m.batch, m.ranged = map[string]string{}, rng.IntN(8) == 0
				for range rng.IntN(4) {
					m.batch[key()] = []string{"", fmt.Sprint(step)}[rng.IntN(2)]
				}
				if m.ranged {
					for k := range m.store {
						m.batch[k] = ""
					}
				}
			case r == 1 && m.batch != nil:
				m.write()
			case r == 2 && m.batch != nil:
				m.write()
				var ops []segment.Op
				for k, v := range m.batch {
					kind := segment.Set
					if v == "" {
						kind = segment.Delete
					}
					if !m.ranged {
						ops = append(ops, segment.Op{Kind: kind, Key: []byte(k), Value: []byte(v)})
					}
				}
				if m.ranged {
					ops = []segment.Op{{Kind: segment.DeleteRange, Key: []byte{byte(meta.Inodes)}, End: []byte{byte(meta.Inodes) + 1}}}
				}
				m.rows.applied([][]segment.Op{ops}, true, number)
				m.batch = nil
			case r < 6:
				if home := rng.IntN(2) == 0; home || m.batch == nil {
					views = append(views, m.view(home && rng.IntN(2) == 0, home))
				}
			case len(views) > 0:
				v, k := views[rng.IntN(len(views))], key()
				if _, ok := v.hidden[k]; ok {
					continue
				}
				has := v.has
				if has == nil {
					has = m.store
				}
				got, ok := v.Get([]byte(k))
				if ok {
					hits++
					if _, under := m.batch[k]; string(got) != has[k] && !(under && v.has == nil) {
						t.Fatalf("seed %d step %d: %q, the view has %q", seed, step, got, has[k])
					}
				} else if has[k] != "" {
					v.Put([]byte(k), []byte(has[k]))
				}
			}
			if len(views) > 6 {
				views = views[1:]
			}
		}
		if hits == 0 {
			t.Fatalf("seed %d: nothing was found", seed)
		}
	}
}

// write has the store get the batch.
func (m *rowsModel) write() {
	for k, v := range m.batch {
		if m.store[k] = v; v == "" {
			delete(m.store, k)
		}
	}
}
