// SPDX-License-Identifier: Apache-2.0

package log

import "fmt"

// Unstore notes durably that the site's store has no whole copy of a closed segment any more,
// though MarkStored said so. From then on its file here is not evicted. Until done is called, once,
// it does not wait for an upload either: the caller may replace what the store has under this name.
// ErrNotClosed: this log has no such segment; ErrNotUploaded: it says no such thing; ErrNotLocal:
// its file is not here. Then nothing is changed.
func (l *Log) Unstore(name string) (done func(), err error) {
	l.tableMu.Lock()
	defer l.tableMu.Unlock()
	is, ok := l.Find(name)
	if !ok {
		return nil, fmt.Errorf("unstore %s: %w", name, ErrNotClosed)
	}
	s, err := l.closedSegment(is.Seq)
	switch {
	case err != nil:
	case !s.uploaded:
		err = ErrNotUploaded
	case !s.local:
		err = ErrNotLocal
	}
	if err != nil {
		return nil, fmt.Errorf("unstore %s: %w", name, err)
	}
	s.uploaded = false
	if err := l.note(entryOf(&s)); err != nil {
		return nil, err
	}
	set := func(mending bool, change func(*seg)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if here, ok := l.find(is.Seq); ok && here.closed && here.hash == is.Hash {
			l.update(here, func(s *seg) {
				s.mending = mending
				change(s)
			})
		}
	}
	set(true, func(s *seg) { s.uploaded, s.noted = false, true })
	return func() { set(false, func(*seg) {}) }, nil
}
