// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"strconv"
	"strings"
	"sync"

	"github.com/weir-storage/weir/volume"
)

// paths remembers by which names clients found files, for people who read the log. A file handle
// says nothing of a name. What was not looked up lately is not known, and what was renamed since is
// known by its former name.
type paths struct {
	mu       sync.Mutex
	now, old map[fileKey]name // what is found in old moves to now; a full now becomes old
}

type fileKey struct {
	volume volume.ID
	h      volume.Handle
}

type name struct {
	dir  volume.Handle
	name string
}

// A gateway remembers between maxPaths and twice as many names. maxDepth bounds a path.
const (
	maxPaths = 8192
	maxDepth = 64
)

// found notes that the file h is name in dir.
func (p *paths) found(id volume.ID, dir volume.Handle, as string, h volume.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(fileKey{id, h}, name{dir, as})
}

func (p *paths) put(k fileKey, n name) {
	if len(p.now) >= maxPaths || p.now == nil {
		p.now, p.old = make(map[fileKey]name, maxPaths), p.now
	}
	p.now[k] = n
}

// path returns the path of h in its volume, as far as it is known: …/dir/file, or inode 17.
func (p *paths) path(id volume.ID, h volume.Handle) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for at := h; at != volume.Root; {
		k := fileKey{id, at}
		n, ok := p.now[k]
		if !ok {
			if n, ok = p.old[k]; ok {
				p.put(k, n)
			}
		}
		if !ok || len(names) == maxDepth {
			if len(names) == 0 {
				return "inode " + strconv.FormatUint(h.Ino, 10)
			}
			names = append(names, "…")
			break
		}
		names = append(names, n.name)
		at = n.dir
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		if names[i] != "…" || i < len(names)-1 {
			b.WriteByte('/')
		}
		b.WriteString(names[i])
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
