// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
)

// flights are the blocks that are being read from Sources. Who needs one of them meanwhile waits,
// and finds it in the read cache: no byte comes twice because two want it. The zero value is ready.
type flights struct {
	mu    sync.Mutex
	under map[segment.BlockRef]chan struct{} // closed at the end
}

// begin returns those of the blocks that nobody reads, which the caller is to read and then to end,
// and those that others read, with what to wait for.
func (fs *flights) begin(refs []segment.BlockRef, blocks []int) (mine, theirs []int, wait []<-chan struct{}) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.under == nil {
		fs.under = map[segment.BlockRef]chan struct{}{}
	}
	began := map[segment.BlockRef]bool{}
	for _, i := range blocks {
		if c := fs.under[refs[i]]; c != nil && !began[refs[i]] {
			theirs, wait = append(theirs, i), append(wait, c)
			continue
		}
		if !began[refs[i]] {
			fs.under[refs[i]], began[refs[i]] = make(chan struct{}), true
		}
		mine = append(mine, i)
	}
	return mine, theirs, wait
}

// end notes that blocks of begin were read, or could not be.
func (fs *flights) end(refs []segment.BlockRef, mine []int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, i := range mine {
		if c := fs.under[refs[i]]; c != nil { // not the same block again
			close(c)
			delete(fs.under, refs[i])
		}
	}
}

// readFar is readRun for a run that no file of this pool has.
func (l *Log) readFar(ctx context.Context, r blockRun, refs []segment.BlockRef, out [][]byte, how reading) error {
	mine, theirs, wait := l.flights.begin(refs, r.blocks)
	if len(mine) > 0 {
		err := func() error {
			defer l.flights.end(refs, mine)
			return l.readRun(ctx, blockRun{r.s, r.opener, mine}, refs, out, how)
		}()
		if err != nil {
			return err
		}
	}
	var rest []int
	for n, i := range theirs {
		select {
		case <-wait[n]:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !l.readCached(r.opener, &r.s, refs[i], &out[i], how) {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return l.readRun(ctx, blockRun{r.s, r.opener, rest}, refs, out, how)
}
