// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Tail classifies the end of a segment.
type Tail int

// How a segment can end.
const (
	Clean   Tail = iota // with a whole frame
	Torn                // inside a frame, or in zeros: a crash cut off a write
	Corrupt             // with bytes that are not a frame
)

func (t Tail) String() string { return [...]string{"clean", "torn", "corrupt"}[t] }

// Scanned is the result of Scan.
type Scanned struct {
	Header  Header
	Valid   uint64 // bytes of whole, verified frames; 0 if even the header is not one
	Records int
	Tail    Tail
	Why     error // reason for a tail that is not Clean: a CorruptError or ErrShort
}

// Scan walks the frames of one segment in r, from its header to its end or to the first bytes that
// do not verify. It needs no key. If fn is not nil, Scan calls it for each verified frame, header
// first. frame is valid only during the call. The error is one of reading or of fn. Bad bytes are
// not an error.
//
// Scan cannot always distinguish Torn from Corrupt, since a crash may leave any part of what was
// not synced. The distinction is a hint for people and logs.
func Scan(r io.Reader, fn func(off uint64, frame []byte) error) (Scanned, error) {
	var s Scanned
	br := bufio.NewReaderSize(r, 256<<10)
	var buf []byte
	stop := func(tail Tail, why error) (Scanned, error) {
		s.Tail, s.Why = tail, at(why, s.Header.Seq, s.Valid)
		return s, nil
	}
	for {
		prefix, err := br.Peek(4)
		if len(prefix) == 0 && errors.Is(err, io.EOF) {
			if s.Valid == 0 {
				return stop(Torn, ErrShort)
			}
			return s, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return s, err
		}
		n, header, err := FrameSize(prefix)
		switch {
		case errors.Is(err, ErrShort):
			return stop(Torn, err)
		case err != nil && [4]byte(prefix) == [4]byte{}:
			return stop(Torn, err)
		case err != nil:
			return stop(Corrupt, err)
		case header != (s.Valid == 0):
			return stop(Corrupt, &CorruptError{Field: "frame order", Why: fmt.Sprintf("header %v", header)})
		}
		if cap(buf) < n {
			// Grow with the input: a length field alone must not cost memory.
			if n > 1<<20 {
				if p, err := br.Peek(br.Size()); len(p) < br.Size() {
					if err != nil && err != io.EOF {
						return s, err
					}
					return stop(Torn, ErrShort)
				}
			}
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(br, buf); err == io.ErrUnexpectedEOF || err == io.EOF {
			return stop(Torn, ErrShort)
		} else if err != nil {
			return s, err
		}
		if _, err := Next(buf); err != nil {
			return stop(Corrupt, err)
		}
		if header {
			if s.Header, err = DecodeHeader(buf); err != nil {
				return stop(Corrupt, err)
			}
		} else if e := FrameEpoch(buf); e != s.Header.Epoch {
			return stop(Corrupt, &CorruptError{Field: "record epoch", Why: fmt.Sprintf("%d in a segment of epoch %d", e, s.Header.Epoch)})
		} else {
			s.Records++
		}
		if fn != nil {
			if err := fn(s.Valid, buf); err != nil {
				return s, err
			}
		}
		s.Valid += uint64(n)
	}
}
