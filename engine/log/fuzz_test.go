// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

func FuzzMark(f *testing.F) {
	w := &watermark{identity: cachepool.ID{1}}
	f.Add(w.encode(mark{durable: Position{Seq: 1, Off: 200}, committed: Position{Seq: 1, Off: 128}, lost: true}, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= slotSize {
			b = b[:slotSize]
			binary.BigEndian.PutUint32(b[slotSize-4:], crc32.Checksum(b[:slotSize-4], castagnoli))
		}
		if m := decodeMark(b); m != nil && !bytes.Equal(m.encode(m.mark, m.generation), b) {
			t.Fatalf("%x", b)
		}
	})
}

func FuzzFileName(f *testing.F) {
	f.Add(fileName(7))
	f.Add("7.seg")
	f.Fuzz(func(t *testing.T, name string) {
		if seq, ok := parseFileName(name); ok && fileName(seq) != name {
			t.Fatal(name)
		}
	})
}

// FuzzOpen opens a log whose folder has arbitrary files: two segments, table, watermark and note of
// a poisoned log. It opens or says why not; what it has then can be read.
func FuzzOpen(f *testing.F) {
	s := newSetup(1)
	noted(f, &s)
	pool, err := s.disk.Open()
	must(f, err)
	dir, err := pool.Volume(testDir)
	must(f, err)
	files := map[string][]byte{}
	all, err := dir.List()
	must(f, err)
	for _, i := range all {
		file, err := dir.Open(i.Name)
		must(f, err)
		files[i.Name] = make([]byte, i.Size)
		must(f, readFull(file, files[i.Name], 0))
		must(f, file.Close())
	}
	f.Add(files[fileName(1)], files[fileName(2)], files["segments"], files[watermarkName], []byte{})
	f.Add(files[fileName(1)], files[fileName(2)][:200], []byte{}, []byte{}, []byte{})
	f.Add(files[fileName(1)], []byte{}, files["segments"][:70], files[watermarkName][:slotSize], make([]byte, poisonSize))
	f.Fuzz(func(t *testing.T, one, two, table, durable, poisoned []byte) {
		s := newSetup(2)
		pool, err := s.disk.Open()
		must(t, err)
		dir, err := pool.Volume(testDir)
		must(t, err)
		for name, b := range map[string][]byte{fileName(1): one, fileName(2): two, "segments": table, watermarkName: durable,
			poisonName: poisoned} {
			if len(b) == 0 {
				continue
			}
			file, err := dir.Create(name)
			must(t, err)
			_, err = file.WriteAt(b, 0)
			must(t, err)
			must(t, file.Close())
		}
		s.disk.Kill()
		l, _, err := s.open()
		if err != nil {
			return
		}
		_ = l.Replay(t.Context(), Position{}, func(Entry) error { return nil })
		l.Segments()
		_ = l.Close() // a log in doubt may say so
	})
}

// FuzzIngest takes in arbitrary bytes as frames of another gateway, whole and as an outline. What
// it takes in is right: it was another log's.
func FuzzIngest(f *testing.F) {
	s := newSetup(1)
	noted(f, &s)
	l := s.mustOpen(f)
	b, _, err := l.Read(context.Background(), Position{}, 1<<20)
	must(f, err)
	f.Add(b, uint16(0))
	f.Add(b[:300], uint16(segment.HeaderSize))
	f.Add(b[:len(b)-1], uint16(0))
	f.Fuzz(func(t *testing.T, frames []byte, cut uint16) {
		n := min(int(cut), len(frames))
		s := newSetup(2)
		copied := s.mustOpen(t)
		for _, part := range [][]byte{frames[:n], frames[n:]} {
			entries, err := copied.Ingest(copied.End(), part)
			if err != nil && len(entries) > 0 && copied.End() != entries[len(entries)-1].End {
				t.Fatalf("it ends at %s after an entry that ends at %s", copied.End(), entries[len(entries)-1].End)
			}
			for _, e := range entries {
				if e.Record != nil && !bytes.HasPrefix(b, frames[:min(len(frames), int(e.End.Off))]) && e.End.Seq == 1 {
					t.Fatalf("forged: %+v", e.Record)
				}
			}
		}
		must(t, copied.Close())
		pool, err := newDisk(3, 1<<30).Open()
		must(t, err)
		dir, err := pool.Volume(testDir)
		must(t, err)
		o, err := OpenOutline(Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts, Now: time.Now})
		must(t, err)
		_, _, _ = o.Outline(Position{}, [][]byte{frames[:n], frames[n:]})
		must(t, o.Close())
	})
}
