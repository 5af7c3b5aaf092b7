// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/volume"
)

var (
	drawName = rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "c", "d"}),
		rapid.SampledFrom([]string{"a", "b", "c", "d"}),
		rapid.SampledFrom([]string{"a", "b", "c", "", ".", "..", "x/y", strings.Repeat("l", 255), strings.Repeat("l", 256)}),
	)
	drawMode   = rapid.SampledFrom([]uint32{0o777, 0o777, 0o755, 0o700, 0o1777, 0o2775, 0o4755, 0o666, 0o644, 0o600, 0o111, 0, 0o6777})
	drawOffset = rapid.SampledFrom([]uint64{0, 0, 1, 10, 100, 4095, 4096, 5000})
	drawOwner  = rapid.SampledFrom([]uint32{0, alice.UID, bob.UID, staff})
)

// kinds are the operations, by name.
func (m *model) kinds() map[string]func(*rapid.T) operation {
	kinds := map[string]func(*rapid.T) operation{
		"create file":      m.create(volume.Regular),
		"create file 2":    m.create(volume.Regular),
		"create directory": m.create(volume.Directory),
		"create other":     m.create(0),
		"lookup": func(t *rapid.T) operation {
			name := drawName.Draw(t, "name")
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				return attrAnswer(v.Lookup(m.ctx, r, a, name))
			}
		},
		"getattr": func(*rapid.T) operation {
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				return attrAnswer(v.GetAttr(m.ctx, r, a))
			}
		},
		"link": func(t *rapid.T) operation {
			name := drawName.Draw(t, "name")
			return func(v volume.Volume, r volume.Request, a, b volume.Handle) answer {
				c, err := v.Link(m.ctx, r, a, b, name)
				return createdAnswer(c, err)
			}
		},
		"remove": func(t *rapid.T) operation {
			name := drawName.Draw(t, "name")
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				c, err := v.Remove(m.ctx, r, a, name)
				return answer{err: err, dirs: []volume.DirChange{c}}
			}
		},
		"rename":   m.rename,
		"rename 2": m.rename,
		"readlink": func(*rapid.T) operation {
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				target, err := v.ReadLink(m.ctx, r, a)
				return answer{err: err, text: target}
			}
		},
		"readdir": func(*rapid.T) operation {
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				entries, err := listAll(m.ctx, v, r, a, 3)
				out := answer{err: err}
				// The implementation chooses the order. Cookies grow with each creation.
				for _, e := range entries {
					out.text += e.Name + " "
					out.attrs = append(out.attrs, e.Attr)
				}
				return out
			}
		},
		"setattr": m.setAttr,
		"write": func(t *rapid.T) operation {
			off, stable := drawOffset.Draw(t, "offset"), rapid.Bool().Draw(t, "stable")
			data := []byte(rapid.StringN(0, 30, 100).Draw(t, "data"))
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				w, err := v.Write(m.ctx, r, a, off, data, stable)
				return attrAnswer(w.Attr, err)
			}
		},
		"read": func(t *rapid.T) operation {
			off, n := drawOffset.Draw(t, "offset"), rapid.IntRange(0, 6000).Draw(t, "length")
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				p := make([]byte, n)
				got, eof, err := v.Read(m.ctx, r, a, off, p)
				return answer{err: err, text: fmt.Sprintf("%q %v", p[:got], eof)}
			}
		},
		"commit": func(*rapid.T) operation {
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				_, err := v.Commit(m.ctx, r, a)
				return answer{err: err}
			}
		},
		"punch": func(t *rapid.T) operation {
			off, n := drawOffset.Draw(t, "offset"), drawOffset.Draw(t, "length")
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				return attrAnswer(v.Punch(m.ctx, r, a, off, n))
			}
		},
		"set xattr": func(t *rapid.T) operation {
			name := rapid.SampledFrom([]string{"user.a", "user.b", ""}).Draw(t, "attribute")
			mode := volume.XattrMode(rapid.IntRange(0, 2).Draw(t, "mode"))
			value := []byte(rapid.StringN(0, 5, 20).Draw(t, "value"))
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				c, err := v.SetXattr(m.ctx, r, a, name, value, mode)
				return answer{err: err, dirs: []volume.DirChange{c}}
			}
		},
		"remove xattr": func(t *rapid.T) operation {
			name := rapid.SampledFrom([]string{"user.a", "user.b"}).Draw(t, "attribute")
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				c, err := v.RemoveXattr(m.ctx, r, a, name)
				return answer{err: err, dirs: []volume.DirChange{c}}
			}
		},
		"list xattrs": func(*rapid.T) operation {
			return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
				list, err := v.ListXattr(m.ctx, r, a)
				return answer{err: err, text: strings.Join(list, " ")}
			}
		},
		"hold":    func(*rapid.T) operation { return m.hold },
		"release": func(*rapid.T) operation { return m.release },
	}
	if _, ok := m.sides[0].(volume.Snapshotter); ok {
		kinds["take snapshot"], kinds["drop snapshot"] = m.takeSnapshot, m.dropSnapshot
	}
	if m.tidy != nil {
		kinds["tidy"] = func(*rapid.T) operation {
			return func(v volume.Volume, _ volume.Request, _, _ volume.Handle) answer {
				if v == m.sides[0] {
					m.tidy()
				}
				return answer{}
			}
		}
	}
	return kinds
}

func (m *model) takeSnapshot(*rapid.T) operation {
	m.taken++
	name := fmt.Sprintf("%s %d", m.slot, m.taken)
	return func(v volume.Volume, r volume.Request, _, _ volume.Handle) answer {
		s, err := v.(volume.Snapshotter).TakeSnapshot(m.ctx, r, name)
		if err != nil {
			return answer{err: err}
		}
		return answer{text: s.Name, snap: &s}
	}
}

func (m *model) dropSnapshot(t *rapid.T) operation {
	name := "none"
	if n := len(m.snaps); n > 0 {
		i := rapid.IntRange(0, n-1).Draw(t, "snapshot")
		name = m.snaps[i].name
		m.snaps = slices.Delete(m.snaps, i, i+1)
	}
	return func(v volume.Volume, r volume.Request, _, _ volume.Handle) answer {
		return answer{err: v.(volume.Snapshotter).DropSnapshot(m.ctx, r, name)}
	}
}

func attrAnswer(a volume.Attr, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	return answer{attrs: []volume.Attr{a}}
}

func createdAnswer(c volume.Created, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	return answer{attrs: []volume.Attr{c.Attr}, text: fmt.Sprintf("new %v", c.New), dirs: []volume.DirChange{c.Dir}}
}

// create draws a Create of the type, or of a link or special file for 0.
func (m *model) create(typ volume.Type) func(*rapid.T) operation {
	return func(t *rapid.T) operation {
		name := drawName.Draw(t, "name")
		args := volume.CreateArgs{Type: typ, Mode: volume.Guarded}
		if typ == 0 {
			args.Type = rapid.SampledFrom([]volume.Type{volume.Symlink, volume.Symlink, volume.FIFO, volume.Char}).Draw(t, "type")
		}
		if rapid.IntRange(0, 5).Draw(t, "with mode") > 0 {
			args.Attr.Mode = ptr(drawMode.Draw(t, "mode"))
		}
		if rapid.IntRange(0, 5).Draw(t, "with group") == 0 {
			args.Attr.GID = ptr(drawOwner.Draw(t, "group"))
		}
		switch args.Type {
		case volume.Symlink:
			args.Target = drawName.Draw(t, "target")
		case volume.Char:
			args.Rdev = 5
		case volume.Regular:
			args.Mode = volume.CreateMode(rapid.IntRange(0, 2).Draw(t, "create mode"))
			args.Verf[0] = byte(rapid.IntRange(0, 1).Draw(t, "verifier"))
			if rapid.IntRange(0, 3).Draw(t, "with size") == 0 {
				args.Attr.Size = ptr(drawOffset.Draw(t, "size"))
			}
		}
		return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
			c, err := v.Create(m.ctx, r, a, name, args)
			out := createdAnswer(c, err)
			if _, known := m.ids[c.Attr.Handle]; err == nil && c.New && (v != m.sides[0] || !known) {
				out.fresh = &c.Attr
			}
			return out
		}
	}
}

func (m *model) rename(t *rapid.T) operation {
	name, newName := drawName.Draw(t, "name"), drawName.Draw(t, "new name")
	same := rapid.Bool().Draw(t, "same directory")
	return func(v volume.Volume, r volume.Request, a, b volume.Handle) answer {
		if same {
			b = a
		}
		from, to, err := v.Rename(m.ctx, r, a, name, b, newName)
		return answer{err: err, dirs: []volume.DirChange{from, to}}
	}
}

func (m *model) setAttr(t *rapid.T) operation {
	var set volume.SetAttr
	drawTime := rapid.SampledFrom([]time.Time{{}, past})
	switch rapid.SampledFrom([]string{"mode", "owner", "group", "size", "times"}).Draw(t, "attribute") {
	case "mode":
		set.Mode = ptr(drawMode.Draw(t, "mode"))
	case "owner":
		set.UID = ptr(drawOwner.Draw(t, "owner"))
	case "group":
		set.GID = ptr(drawOwner.Draw(t, "group"))
	case "size":
		set.Size = ptr(drawOffset.Draw(t, "size"))
	case "times":
		set.Atime, set.Mtime = ptr(drawTime.Draw(t, "atime")), ptr(drawTime.Draw(t, "mtime"))
	}
	return func(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
		return attrAnswer(v.SetAttr(m.ctx, r, a, set))
	}
}

// hold and release count by the subject's handle, so that both sides do the same.
func (m *model) hold(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
	if r.ID != (volume.OpID{}) {
		return answer{} // else it would be done twice
	}
	if m.trails && v == m.sides[0] { // Hold follows an operation that led to a
		if _, err := v.GetAttr(m.ctx, r, a); errors.Is(err, volume.ErrStale) {
			return answer{err: err}
		}
	}
	err := v.Hold(a)
	if i, mine := m.ids[a]; mine && v == m.sides[0] && err == nil {
		m.holds[i]++
	}
	return answer{err: err}
}

func (m *model) release(v volume.Volume, r volume.Request, a, _ volume.Handle) answer {
	if r.ID != (volume.OpID{}) {
		return answer{}
	}
	i := m.indexOf(v, a)
	if m.holds[i] > 0 {
		v.Release(a)
		if v == m.sides[1] { // both sides have released
			m.holds[i]--
		}
	}
	return answer{}
}

func (m *model) indexOf(v volume.Volume, h volume.Handle) int {
	for i, pair := range m.inode {
		if v == m.sides[0] && pair[0] == h || v == m.sides[1] && pair[1] == h {
			return i
		}
	}
	return 0
}
