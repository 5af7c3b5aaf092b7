// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/weir-storage/weir/engine/meta"

// moment is the store as the last batch of the applier left it. All views share it that begin
// before the next batch is in the store. The engine's mu guards it.
type moment struct {
	at   *meta.Moment // nil: nobody has looked since the last batch
	rows *rowsOf      // of the generation in which it was taken
}

// present returns a view of over and of the store as it is, and the rows that it keeps; nil: none.
// The caller holds mu: the applier drops from the overlay what is in the store, and takes the
// moment away, while it holds mu.
func (e *Engine) present(over *meta.Overlay) (*meta.View, *rowsOf) {
	m := &e.latest
	if m.at == nil && !e.mixing {
		m.at, m.rows = e.store.Moment(), e.rows.view(false)
	}
	if m.at != nil {
		v := m.at.View(over)
		v.Keep(m.rows)
		return v, m.rows
	}
	v := e.store.Snapshot(over)
	if !e.leading {
		return v, nil
	}
	rows := e.rows.view(false) // at home the overlay has all that a batch may change
	v.Keep(rows)
	return v, rows
}

// pass takes the moment away: what begins now sees what was applied. The caller holds mu.
func (e *Engine) pass() error {
	m := e.latest.at
	e.latest = moment{}
	if m == nil {
		return nil
	}
	return m.Release()
}

// inodes are those that a tree has read. Most trees read two or three.
type inodes struct {
	few  [4]*meta.Inode // from the first on; the rest is nil
	more map[uint64]*meta.Inode
}

func (s *inodes) get(ino uint64) *meta.Inode {
	for _, n := range s.few {
		if n == nil || n.Ino == ino {
			return n
		}
	}
	return s.more[ino]
}

func (s *inodes) put(n *meta.Inode) {
	for i, old := range s.few {
		if old == nil || old.Ino == n.Ino {
			s.few[i] = n
			return
		}
	}
	if s.more == nil {
		s.more = make(map[uint64]*meta.Inode)
	}
	s.more[n.Ino] = n
}
