// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// notes is the segment table's file while the log is open. Log.tableMu guards it.
type notes struct {
	base  segment.Link   // that the table has
	file  cachepool.File // nil: the next change writes the table anew
	slots int            // of file
	live  int            // entries that counted when the table was read or written anew
	dirty bool           // something is written and not fsynced
	// beyond are entries of segments after the log's end, of which Open made nothing. Truncate, or
	// Open if there is no doubt, ends them.
	beyond []tableEntry
}

// maxSlack is how many slots of a table may count no more, beyond as many as count. Then it is
// written anew.
const maxSlack = 1024

// note makes entries part of the durable table. An error poisons the log, but for
// cachepool.ErrFull, after which nothing has changed. The caller holds tableMu.
func (l *Log) note(entries ...tableEntry) error {
	if l.notes.file == nil || l.notes.slots+len(entries) > 2*l.notes.live+maxSlack {
		return l.rewriteTable(l.tableWith(entries))
	}
	if err := l.appendNotes(entries); err != nil {
		return err
	}
	return l.syncNotes()
}

// appendNotes writes entries, which are durable after syncNotes. The caller holds tableMu. There is
// a file.
func (l *Log) appendNotes(entries []tableEntry) error {
	n := &l.notes
	b := make([]byte, 0, len(entries)*entrySize)
	for i := range entries {
		b = appendSlot(b, &entries[i])
	}
	if _, err := n.file.WriteAt(b, tableHead+int64(n.slots)*entrySize); err != nil {
		return l.fail("write segment table", err)
	}
	n.slots, n.dirty = n.slots+len(entries), true
	return nil
}

// syncNotes makes what was written durable. The caller holds tableMu.
func (l *Log) syncNotes() error {
	if !l.notes.dirty {
		return nil
	}
	if err := l.notes.file.Sync(); err != nil {
		return l.fail("fsync segment table", err)
	}
	l.notes.dirty = false
	return nil
}

// tableWith returns the table as it is with entries after it. The caller holds tableMu.
func (l *Log) tableWith(entries []tableEntry) table {
	t := table{base: l.notes.base}
	l.mu.Lock()
	for i := range l.segs {
		if s := &l.segs[i]; s.noted && s.closed {
			t.entries = append(t.entries, entryOf(s))
		}
	}
	l.mu.Unlock()
	t.entries = append(t.entries, l.notes.beyond...)
	for _, e := range entries {
		i, ok := t.find(e.seq)
		switch {
		case e.state == cutAfter && ok:
			t.entries = t.entries[:i+1]
		case e.state == cutAfter:
			t.entries = t.entries[:i]
		case ok:
			t.entries[i] = e
		default:
			t.entries = slices.Insert(t.entries, i, e)
		}
	}
	return t
}

// rewriteTable makes t the durable table. Errors are those of note. The caller holds tableMu.
func (l *Log) rewriteTable(t table) error {
	err := writeTable(l.cfg.Dir, t)
	if errors.Is(err, cachepool.ErrFull) { // no file was made
		return err
	}
	if err != nil {
		return l.fail("write segment table", err)
	}
	f, err := l.cfg.Dir.Open(tableName)
	if err != nil {
		return l.fail("open segment table", err)
	}
	err = l.closeTable()
	l.notes.base, l.notes.file, l.notes.slots, l.notes.live = t.base, f, len(t.entries), len(t.entries)
	if err != nil {
		return l.fail("close segment table", err)
	}
	return nil
}

// removeTable removes the table of an empty log. The caller holds tableMu, and fsyncs the
// directory.
func (l *Log) removeTable() error {
	err := l.closeTable()
	if removed := l.cfg.Dir.Remove(tableName); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return l.fail("remove segment table", err)
	}
	l.notes = notes{}
	return nil
}

// closeTable closes the table's file. The caller holds tableMu, or nobody else has the log.
func (l *Log) closeTable() error {
	f := l.notes.file
	l.notes.file, l.notes.dirty = nil, false
	if f == nil {
		return nil
	}
	return f.Close()
}

// noteClosed notes the segments that were closed since the last call, so that a later Open need not
// read them. All of them must be durable. It makes nothing durable itself: a note that a crash
// takes costs Open a read. It does nothing while the table is in use: a later call does it. The
// caller holds writer.
func (l *Log) noteClosed() error {
	if !l.tableMu.TryLock() {
		return nil
	}
	defer l.tableMu.Unlock()
	return l.noteMissing()
}

// noteAll is noteClosed that waits for the table, and makes it durable. The caller holds writer.
func (l *Log) noteAll() error {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	return errors.Join(l.noteMissing(), l.syncNotes())
}

// noteMissing is noteClosed for a caller that holds tableMu too.
func (l *Log) noteMissing() error {
	l.mu.Lock()
	var entries []tableEntry
	for _, seq := range l.unnoted {
		if s, ok := l.find(seq); ok && s.closed && !s.noted {
			entries = append(entries, entryOf(s))
		}
	}
	l.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	var err error
	if l.notes.file != nil {
		err = l.appendNotes(entries)
	} else if err = l.note(entries...); errors.Is(err, cachepool.ErrFull) {
		return nil
	}
	if err != nil {
		return err
	}
	l.unnoted = l.unnoted[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setNoted(entries)
	return nil
}

// setNoted notes that the table has entries. The caller holds mu.
func (l *Log) setNoted(entries []tableEntry) {
	for i := range entries {
		if s, ok := l.find(entries[i].seq); ok {
			s.noted = true
		}
	}
}

// forgetAfter ends, durably, what the table says of the segments after seq. The caller holds writer
// and tableMu.
func (l *Log) forgetAfter(seq uint64) error {
	l.mu.Lock()
	has := len(l.notes.beyond) > 0 && l.notes.beyond[len(l.notes.beyond)-1].seq > seq
	for i := len(l.segs) - 1; i >= 0 && l.segs[i].header.Seq > seq; i-- {
		has = has || l.segs[i].noted
	}
	l.mu.Unlock()
	if !has {
		return nil
	}
	if err := l.note(cutEntry(seq)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.segs) - 1; i >= 0 && l.segs[i].header.Seq > seq; i-- {
		l.segs[i].noted = false
	}
	for n := len(l.notes.beyond); n > 0 && l.notes.beyond[n-1].seq > seq; n-- {
		l.notes.beyond = l.notes.beyond[:n-1]
	}
	return nil
}
