// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// tree is the metadata of a volume, with keys and values of the sizes and the kinds that package
// engine/meta has: inodes, names, cookies and extents.
type tree struct {
	rng    *rand.Rand
	all    map[string]string
	number uint64 // epoch<<40 | counter, of the newest record
	now    uint64
	files  []treeFile
}

type treeFile struct {
	dir, ino uint64
	name     string
	extents  int
}

func newTree(seed uint64) *tree {
	return &tree{rng: rand.New(rand.NewPCG(seed, 2)), all: map[string]string{}, number: 1 << 40, now: 1_790_000_000}
}

// next is the number of another record.
func (t *tree) next() uint64 {
	t.number++
	t.now += t.rng.Uint64N(2)
	return t.number
}

func treeKey(table byte, name string, numbers ...uint64) string {
	k := []byte{table}
	for _, n := range numbers {
		k = binary.BigEndian.AppendUint64(k, n)
	}
	if name != "" {
		k = append(append(k, name...), 0)
	}
	return string(append(k, 0, 0, 0, 0))
}

func (t *tree) set(key string, body []byte) {
	v := append([]byte{1}, body...)
	t.all[key] = string(binary.BigEndian.AppendUint32(v, crc32.ChecksumIEEE(append([]byte(key), v...))))
}

// inode writes an inode as it is after a change.
func (t *tree) inode(ino, size uint64) {
	b := binary.BigEndian.AppendUint64(nil, ino>>40)
	b = append(b, 1, 0)
	for _, v := range []uint32{0o644, 1, 1000, 1000} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, v := range []uint64{0, size, size, t.number, 0} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	for range 4 {
		b = binary.BigEndian.AppendUint64(b, t.now)
		b = binary.BigEndian.AppendUint32(b, t.rng.Uint32N(1e9))
	}
	t.set(treeKey('i', "", ino), b)
}

// write gives a file new content.
func (t *tree) write(f treeFile) {
	n := t.next()
	for i := range f.extents {
		k := treeKey('e', "", f.ino, uint64(i)<<16)
		t.set(k, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0})
		ref := binary.BigEndian.AppendUint64([]byte(t.all[k]), n>>8&0xffff)
		ref = binary.BigEndian.AppendUint64(ref, t.rng.Uint64N(64<<20))
		ref = binary.BigEndian.AppendUint32(ref, 20000+t.rng.Uint32N(20000))
		t.all[k] = string(binary.BigEndian.AppendUint64(ref, n<<20|uint64(i)))
	}
	t.inode(f.ino, uint64(f.extents)<<16-t.rng.Uint64N(1<<16))
}

// grow makes n files in directories of 40.
func (t *tree) grow(n int) {
	var dir uint64
	for i := range n {
		if i%40 == 0 {
			dir = t.next()
			t.inode(dir, 0)
		}
		f := treeFile{dir: dir, ino: t.next(), extents: 1 + t.rng.IntN(3)}
		f.name = fmt.Sprintf("image-%d-%06x.tiff", i%40, t.rng.Uint32N(1<<24))
		entry := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, f.ino), f.ino>>40)
		t.set(treeKey('n', f.name, f.dir), append(binary.BigEndian.AppendUint64(entry, f.ino), 1))
		t.set(treeKey('c', "", f.dir, f.ino), append(entry, f.name...))
		t.write(f)
		t.files = append(t.files, f)
	}
}

func (t *tree) remove(f treeFile) {
	t.next()
	delete(t.all, treeKey('n', f.name, f.dir))
	delete(t.all, treeKey('c', "", f.dir, f.ino))
	delete(t.all, treeKey('i', "", f.ino))
	for i := range f.extents {
		delete(t.all, treeKey('e', "", f.ino, uint64(i)<<16))
	}
}

// changes are what may happen to one file of a hundred.
var changes = []struct {
	name  string
	local bool // to files of the same directories
	do    func(t *tree, files int)
}{
	{"files of a subtree are written again", true, func(t *tree, n int) {
		for _, f := range t.files[len(t.files)/3:][:n] {
			t.write(f)
		}
	}},
	{"attributes of a subtree change", true, func(t *tree, n int) {
		for _, f := range t.files[len(t.files)/3:][:n] {
			t.next()
			t.inode(f.ino, 1000)
		}
	}},
	{"files are made", true, func(t *tree, n int) {
		t.number += 1 << 40 // a new epoch, perhaps
		t.grow(n)
	}},
	{"a subtree is removed", true, func(t *tree, n int) {
		for _, f := range t.files[len(t.files)/2:][:n] {
			t.remove(f)
		}
	}},
	{"files all over are written again", false, func(t *tree, n int) {
		for range n {
			t.write(t.files[t.rng.IntN(len(t.files))])
		}
	}},
	{"attributes all over change", false, func(t *tree, n int) {
		for range n {
			t.next()
			t.inode(t.files[t.rng.IntN(len(t.files))].ino, 1000)
		}
	}},
}

// clone returns a tree that changes alone.
func (t *tree) clone() *tree {
	c := *t
	c.rng, c.all, c.files = rand.New(rand.NewPCG(3, 3)), maps.Clone(t.all), slices.Clone(t.files)
	return &c
}

// TestChangeOfAPart: a change of 1 % of a tree puts at most 5 % of a checkpoint, wherever the
// changed files are.
func TestChangeOfAPart(t *testing.T) {
	const files = 200_000
	base := newTree(1)
	base.grow(files)
	store := newMemory()
	was := sorted(base.all)
	m, whole := mustWrite(t, testHead, was, store)
	t.Logf("%d pairs, %.1f MB, %.1f MB in %d chunks", m.Pairs, float64(m.Bytes)/1e6, float64(whole.Sealed)/1e6, whole.Chunks)
	for _, c := range changes {
		tree := base.clone()
		c.do(tree, files/100)
		after := newMemory()
		maps.Copy(after.objects, store.objects)
		_, stats := mustWriteOver(t, m, was, sorted(tree.all), after)
		part := 100 * float64(stats.Sealed) / float64(whole.Sealed)
		t.Logf("%-36s puts %4d of %4d chunks, %5.2f %%", c.name, stats.Uploaded, stats.Chunks, part)
		if part > 5 {
			t.Errorf("%s: %.2f %% were put, at most 5 %% are allowed", c.name, part)
		}
	}
}

// TestChangesAllOver: of checkpoints one after the other, between which 1 % of the files change all
// over the tree, each puts a part. It prints how much.
func TestChangesAllOver(t *testing.T) {
	const files, times = 10_000, 40
	tree := newTree(2)
	tree.grow(files)
	store := newMemory()
	m, whole := mustWrite(t, testHead, sorted(tree.all), store)
	var sum, most int64
	for range times {
		was, all := m, sorted(tree.all)
		changes[4].do(tree, files/100)
		var stats Stats
		m, stats = mustWriteOver(t, was, all, sorted(tree.all), store)
		sum, most = sum+stats.Sealed, max(most, stats.Sealed)
	}
	part := func(n int64) float64 { return 100 * float64(n) / float64(whole.Sealed) }
	t.Logf("%.1f MB in %d chunks; each of %d puts %.1f %% of that, at most %.1f %%; now %d chunks and %d of changes",
		float64(whole.Sealed)/1e6, whole.Chunks, times, part(sum)/times, part(most), len(m.Chunks), len(m.Changes))
	if part(sum)/times > 30 {
		t.Errorf("each puts %.1f %%: changes over chunks are of no use", part(sum)/times)
	}
}
