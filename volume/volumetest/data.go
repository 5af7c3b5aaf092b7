// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"bytes"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/volume"
)

func testReadWrite(e *env) {
	e.sub("basics", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		w, err := e.v.Write(e.ctx, e.req(), f, 0, []byte("hello world"), true)
		e.ok(err)
		if w.Attr.Size != 11 || w.Attr.Used == 0 || exact(w.Attr) != exact(e.attr(f)) {
			e.Errorf("Write returned %+v, GetAttr %+v", w.Attr, e.attr(f))
		}
		p := make([]byte, 100)
		for _, tc := range []struct {
			off  uint64
			len  int
			want string
			eof  bool
		}{
			{0, 100, "hello world", true}, {0, 11, "hello world", true}, {0, 5, "hello", false}, {6, 100, "world", true},
			{10, 1, "d", true}, {11, 1, "", true}, {1 << 40, 10, "", true}, {1<<64 - 1, 10, "", true}, {5, 0, "", false}, {11, 0, "", true},
		} {
			for i := range p {
				p[i] = '!'
			}
			n, eof, err := e.v.Read(e.ctx, e.req(), f, tc.off, p[:tc.len])
			e.ok(err)
			if string(p[:n]) != tc.want || eof != tc.eof {
				e.Errorf("read %d at %d: %q, end %v; want %q, end %v", tc.len, tc.off, p[:n], eof, tc.want, tc.eof)
			}
		}
		data := []byte("HELLO")
		_, err = e.v.Write(e.ctx, e.req(), f, 6, data, false)
		e.ok(err)
		copy(data, "xxxxx") // the volume may not keep the caller's memory
		if got := e.content(f); got != "hello HELLO" {
			e.Errorf("content is %q", got)
		}
		before := e.attr(f)
		if a := e.write(f, 50, ""); exact(a) != exact(before) {
			e.Errorf("writing nothing changed %+v to %+v", before, a)
		}
	})
	e.sub("outcomes", func(e *env, dir volume.Handle) {
		link := e.create(dir, "link", linkArgs("f")).Handle
		p := make([]byte, 1)
		for _, tc := range []struct {
			h    volume.Handle
			want error
		}{{dir, volume.ErrIsDir}, {link, volume.ErrInvalid}} {
			_, _, err := e.v.Read(e.ctx, e.req(), tc.h, 0, p)
			e.fails(err, tc.want)
			_, err = e.v.Write(e.ctx, e.req(), tc.h, 0, p, true)
			e.fails(err, tc.want)
			_, err = e.v.Commit(e.ctx, e.req(), tc.h)
			e.fails(err, tc.want)
			_, err = e.v.Punch(e.ctx, e.req(), tc.h, 0, 1)
			e.fails(err, tc.want)
			_, err = e.v.Seek(e.ctx, e.req(), tc.h, 0, true)
			e.fails(err, tc.want)
		}
	})
}

func testDataLimits(e *env) {
	e.sub("sizes", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		big := bytes.Repeat([]byte("0123456789abcdef"), volume.MaxIO/16)
		_, err := e.v.Write(e.ctx, e.req(), f, 3, big, true)
		e.ok(err)
		got := make([]byte, volume.MaxIO)
		n, eof, err := e.v.Read(e.ctx, e.req(), f, 3, got)
		e.ok(err)
		if n != len(big) || !eof || !bytes.Equal(got, big) {
			e.Errorf("reading MaxIO bytes back: %d bytes, end %v, equal %v", n, eof, bytes.Equal(got, big))
		}
		_, err = e.v.Write(e.ctx, e.req(), f, 0, append(big, 0), true)
		e.fails(err, volume.ErrInvalid)
		_, _, err = e.v.Read(e.ctx, e.req(), f, 0, make([]byte, volume.MaxIO+1))
		e.fails(err, volume.ErrInvalid)
		for _, off := range []uint64{volume.MaxSize, volume.MaxSize + 1, 1<<64 - 1} {
			_, err = e.v.Write(e.ctx, e.req(), f, off, []byte("x"), true)
			e.fails(err, volume.ErrTooBig)
		}
		if a := e.write(f, volume.MaxSize-1, "x"); a.Size != volume.MaxSize {
			e.Errorf("after writing the last possible byte the size is %d", a.Size)
		}
		_, err = e.v.Punch(e.ctx, e.req(), f, 10, 1<<64-5)
		e.fails(err, volume.ErrInvalid)
	})
}

func testSparse(e *env) {
	const mib = 1 << 20
	seek := func(e *env, f volume.Handle, off uint64, hole bool) uint64 {
		e.Helper()
		got, err := e.v.Seek(e.ctx, e.req(), f, off, hole)
		e.ok(err)
		return got
	}
	e.sub("holes", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		piece := strings.Repeat("x", mib)
		e.write(f, 2*mib, piece)
		e.write(f, 6*mib, piece)
		e.setAttr(f, volume.SetAttr{Size: ptr(uint64(10 * mib))})
		want := strings.Repeat("\x00", 2*mib) + piece + strings.Repeat("\x00", 3*mib) + piece + strings.Repeat("\x00", 3*mib)
		if got := e.content(f); got != want {
			e.Error("holes and data read wrong")
		}
		if a := e.attr(f); a.Used < 2*mib || a.Used >= 10*mib {
			e.Errorf("2 MiB of data in 10 MiB use %d bytes", a.Used)
		}
		// Holes this large have to be found.
		for _, tc := range []struct {
			off, want uint64
			hole      bool
		}{
			{0, 0, true}, {0, 2 * mib, false}, {2*mib - 1, 2 * mib, false}, {2 * mib, 2 * mib, false}, {2*mib + 5, 2*mib + 5, false},
			{2 * mib, 3 * mib, true}, {3*mib - 1, 3 * mib, true}, {4 * mib, 6 * mib, false}, {6 * mib, 7 * mib, true},
			{9 * mib, 9 * mib, true},
		} {
			if got := seek(e, f, tc.off, tc.hole); got != tc.want {
				e.Errorf("seek from %d (hole %v) = %d, want %d", tc.off, tc.hole, got, tc.want)
			}
		}
		for _, tc := range []struct {
			off  uint64
			hole bool
		}{{7 * mib, false}, {10 * mib, false}, {10 * mib, true}, {11 * mib, true}} {
			_, err := e.v.Seek(e.ctx, e.req(), f, tc.off, tc.hole)
			e.fails(err, volume.ErrNoData)
		}
	})
	e.sub("end of file", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.write(f, 0, "abc")
		if got := seek(e, f, 0, true); got != 3 {
			e.Errorf("the hole after the data is at %d, want the end of the file", got)
		}
		empty := e.file(dir, "empty", 0o644)
		for _, hole := range []bool{false, true} {
			_, err := e.v.Seek(e.ctx, e.req(), empty, 0, hole)
			e.fails(err, volume.ErrNoData)
		}
	})
	e.sub("punch", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		for i := range uint64(4) {
			e.write(f, i*mib, strings.Repeat(string(rune('a'+i)), mib))
		}
		full := e.attr(f)
		a, err := e.v.Punch(e.ctx, e.req(), f, mib, 2*mib)
		e.ok(err)
		if a.Size != 4*mib || a.Used > full.Used-2*mib || a.Change <= full.Change {
			e.Errorf("after punching 2 of 4 MiB: %+v, before %+v", a, full)
		}
		if seek(e, f, 0, true) != mib || seek(e, f, mib, false) != 3*mib {
			e.Errorf("the punched hole is not found")
		}
		want := strings.Repeat("a", mib) + strings.Repeat("\x00", 2*mib) + strings.Repeat("d", mib)
		if e.content(f) != want {
			e.Error("content is wrong after punching")
		}
		_, err = e.v.Punch(e.ctx, e.req(), f, 3*mib+10, 5*mib)
		e.ok(err)
		_, err = e.v.Punch(e.ctx, e.req(), f, 100*mib, mib)
		e.ok(err)
		_, err = e.v.Punch(e.ctx, e.req(), f, 5, 0)
		e.ok(err)
		if e.attr(f).Size != 4*mib || e.content(f) != want[:3*mib+10]+strings.Repeat("\x00", mib-10) {
			e.Error("content is wrong after punching beyond the end")
		}
		e.write(f, 2*mib, "new")
		if e.content(f)[2*mib:2*mib+4] != "new\x00" {
			e.Error("data written into a hole reads wrong")
		}
	})
	e.sub("old data stays away", func(e *env, dir volume.Handle) {
		f := e.file(dir, "f", 0o644)
		e.write(f, 0, strings.Repeat("secret", 1000))
		e.setAttr(f, volume.SetAttr{Size: ptr(uint64(10))})
		e.setAttr(f, volume.SetAttr{Size: ptr(uint64(3000))})
		e.write(f, 5000, "end")
		want := "secretsecr" + strings.Repeat("\x00", 4990) + "end"
		if got := e.content(f); got != want {
			e.Errorf("after truncating and extending, old data is back or new is lost (%d bytes)", len(got))
		}
	})
}

// dataModel is a file as bytes, and which of them are recorded.
type dataModel struct {
	bytes    []byte
	recorded []bool
}

func (m *dataModel) resize(size int) {
	if size <= len(m.bytes) {
		m.bytes, m.recorded = m.bytes[:size], m.recorded[:size]
		return
	}
	m.bytes = append(m.bytes, make([]byte, size-len(m.bytes))...)
	m.recorded = append(m.recorded, make([]bool, size-len(m.recorded))...)
}

func (m *dataModel) write(off int, data []byte) {
	if len(data) == 0 {
		return
	}
	if off+len(data) > len(m.bytes) {
		m.resize(off + len(data))
	}
	copy(m.bytes[off:], data)
	for i := range data {
		m.recorded[off+i] = true
	}
}

func (m *dataModel) punch(off, n int) {
	for i := off; i < min(off+n, len(m.bytes)); i++ {
		m.bytes[i], m.recorded[i] = 0, false
	}
}

func (m *dataModel) next(off int, recorded bool) (int, bool) {
	for i := off; i < len(m.bytes); i++ {
		if m.recorded[i] == recorded {
			return i, true
		}
	}
	return len(m.bytes), false
}

// testDataModel compares random data operations on one file with dataModel.
// Offsets cluster around block and page boundaries.
func testDataModel(e *env) {
	work := e.workDir()
	round := 0
	rapid.Check(e.T, func(t *rapid.T) {
		round++
		c, err := e.v.Create(e.ctx, e.req(), work, fmt.Sprint(round), fileArgs(0o644))
		if err != nil {
			t.Fatal(err)
		}
		f := c.Attr.Handle
		m := &dataModel{}
		offsets := rapid.Custom(func(t *rapid.T) int {
			base := rapid.SampledFrom([]int{0, 4096, 32 << 10, 64 << 10, 128 << 10, 200 << 10}).Draw(t, "base")
			return max(0, base+rapid.IntRange(-20, 3000).Draw(t, "distance"))
		})
		lengths := rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(4000, 70000))
		for range rapid.IntRange(1, 25).Draw(t, "operations") {
			off, n := offsets.Draw(t, "offset"), lengths.Draw(t, "length")
			switch rapid.SampledFrom([]string{"write", "write", "unstable", "resize", "punch", "commit"}).Draw(t, "operation") {
			case "write":
				data := pattern(t, n)
				_, err = e.v.Write(e.ctx, e.req(), f, uint64(off), data, true)
				m.write(off, data)
			case "unstable":
				data := pattern(t, n)
				_, err = e.v.Write(e.ctx, e.req(), f, uint64(off), data, false)
				m.write(off, data)
			case "resize":
				_, err = e.v.SetAttr(e.ctx, e.req(), f, volume.SetAttr{Size: ptr(uint64(off))})
				m.resize(off)
			case "punch":
				_, err = e.v.Punch(e.ctx, e.req(), f, uint64(off), uint64(n))
				m.punch(off, n)
			case "commit":
				_, err = e.v.Commit(e.ctx, e.req(), f)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRead(t, e, f, m, offsets.Draw(t, "read at"), lengths.Draw(t, "read"))
			checkSeek(t, e, f, m, offsets.Draw(t, "seek from"))
		}
		got, err := readAll(e.ctx, e.v, e.req(), f)
		if err != nil || got != string(m.bytes) {
			t.Fatalf("whole content: %d bytes, equal %v, error %v; want %d bytes", len(got), got == string(m.bytes), err, len(m.bytes))
		}
	})
}

// pattern returns n bytes that differ from draw to draw and are never zero.
func pattern(t *rapid.T, n int) []byte {
	seed := rapid.Byte().Draw(t, "seed")
	data := make([]byte, n)
	for i := range data {
		data[i] = 1 | seed ^ byte(i) ^ byte(i>>8)
	}
	return data
}

func checkRead(t *rapid.T, e *env, f volume.Handle, m *dataModel, off, n int) {
	p := bytes.Repeat([]byte("!"), n)
	got, eof, err := e.v.Read(e.ctx, e.req(), f, uint64(off), p)
	if err != nil {
		t.Fatal(err)
	}
	begin := min(off, len(m.bytes))
	want := m.bytes[begin:min(off+n, len(m.bytes))]
	if !bytes.Equal(p[:got], want) || eof != (off+n >= len(m.bytes)) {
		t.Fatalf("read of %d at %d: %d bytes (equal %v), end %v; the file has %d bytes", n, off, got, bytes.Equal(p[:got], want),
			eof, len(m.bytes))
	}
}

// checkSeek accepts that an implementation calls a part of a hole data, but not
// the reverse.
func checkSeek(t *rapid.T, e *env, f volume.Handle, m *dataModel, off int) {
	data, err := e.v.Seek(e.ctx, e.req(), f, uint64(off), false)
	exactData, found := m.next(off, true)
	switch {
	case off >= len(m.bytes):
		if outcome(err) != volume.ErrNoData {
			t.Fatalf("seek data from %d beyond the end %d: %d, %v", off, len(m.bytes), data, err)
		}
		return
	case err != nil && (found || outcome(err) != volume.ErrNoData):
		t.Fatalf("seek data from %d: %v; there is data at %d: %v", off, err, exactData, found)
	case err == nil && (data < uint64(off) || data > uint64(exactData) || data >= uint64(len(m.bytes))):
		t.Fatalf("seek data from %d: %d; there is data at %d", off, data, exactData)
	}
	hole, err := e.v.Seek(e.ctx, e.req(), f, uint64(off), true)
	if err != nil {
		t.Fatalf("seek hole from %d: %v", off, err)
	}
	exactHole, _ := m.next(off, false)
	if hole < uint64(exactHole) || hole > uint64(len(m.bytes)) || hole < uint64(len(m.bytes)) && m.recorded[hole] {
		t.Fatalf("seek hole from %d: %d; the hole is at %d, the end at %d", off, hole, exactHole, len(m.bytes))
	}
}
