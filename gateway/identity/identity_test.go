// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/volume"
)

var maps = map[string]users.Policy{
	"nothing": {},
	"root":    {Squash: users.SquashRoot},
	"all":     {Squash: users.SquashAll, AnonymousUID: 7, AnonymousGID: 8},
	"ranges": {UIDs: []users.Range{{Client: 1000, Volume: 5000, Count: 10}, {Client: 0, Volume: 42}},
		GIDs: []users.Range{{Client: 100, Volume: 600, Count: 2}}, AnonymousUID: 7},
	"uids": {UIDs: []users.Range{{Client: 1000, Volume: 5000}}},
	"gids": {GIDs: []users.Range{{Client: 100, Volume: 600}}},
	"mask": {Mask: "037"},
}

// TestMap: who a user of a client is to the volume, and what he is shown.
func TestMap(t *testing.T) {
	for _, c := range []struct {
		of, sent, is string // user:group[groups]
		file, shown  string // owner:group mode
	}{
		{"nothing", "0:0[1]", "0:0[1]", "0:5 755", "0:5 755"},
		{"root", "0:0[0 5]", "65534:65534[5]", "0:0 755", "0:0 755"},
		{"root", "1000:100[0 5]", "1000:100[5]", "1000:100 640", "1000:100 640"},
		{"all", "1000:100[5]", "7:8[]", "7:8 640", "7:8 640"},
		{"all", "0:0[]", "7:8[]", "1:2 640", "1:2 640"},
		{"ranges", "1000:100[101 102]", "5000:600[601]", "5000:600 640", "1000:100 640"},
		{"ranges", "1009:101[]", "5009:601[]", "5009:601 640", "1009:101 640"},
		{"ranges", "1010:102[]", "7:65534[]", "5010:602 640", "65534:65534 640"},
		{"ranges", "999:99[]", "7:65534[]", "4999:599 640", "65534:65534 640"},
		{"ranges", "0:0[0]", "42:65534[]", "0:0 640", "65534:65534 640"},
		{"ranges", "5000:600[600]", "7:65534[]", "42:600 640", "0:100 640"},
		{"uids", "1000:0[0 100]", "5000:65534[]", "5000:0 640", "1000:65534 640"},
		{"gids", "0:100[0]", "65534:600[]", "0:600 640", "65534:100 640"},
		{"mask", "1000:0[7]", "1000:0[7]", "0:0 4777", "0:0 4740"},
	} {
		m := New(maps[c.of])
		if got := m.Caller(caller(t, c.sent)); text(got) != c.is {
			t.Errorf("%s: %s is %s, want %s", c.of, c.sent, text(got), c.is)
		}
		var a volume.Attr
		if n, _ := fmt.Sscanf(c.file, "%d:%d %o", &a.UID, &a.GID, &a.Mode); n < 3 {
			t.Fatal(c.file)
		}
		s := m.Shown(a)
		if got := fmt.Sprintf("%d:%d %o", s.UID, s.GID, s.Mode); got != c.shown {
			t.Errorf("%s: file %s is shown as %s, want %s", c.of, c.file, got, c.shown)
		}
	}
}

// TestMaskCounts: what the mask takes does not count at the volume.
func TestMaskCounts(t *testing.T) {
	file := volume.Attr{Type: volume.Regular, UID: 1, GID: 2, Mode: 0o666}
	for mask, want := range map[string]bool{"": true, "007": true, "077": false} {
		got := volume.Permits(file, New(users.Policy{Squash: users.SquashRoot, Mask: mask}).Caller(volume.Caller{UID: 9, GID: 2}),
			volume.Write)
		if got != want {
			t.Errorf("mask %q: the group may write: %v, want %v", mask, got, want)
		}
	}
}

// TestSet: whom users give files to, and with which mode.
func TestSet(t *testing.T) {
	n := func(v uint32) *uint32 { return &v }
	for _, c := range []struct {
		of   string
		set  volume.SetAttr
		want string
		err  error
	}{
		{"nothing", volume.SetAttr{UID: n(0), Mode: n(0o4777)}, "uid 0 mode 4777", nil},
		{"root", volume.SetAttr{UID: n(0)}, "uid 0", nil}, // the volume refuses nobody
		{"ranges", volume.SetAttr{UID: n(1003), GID: n(101)}, "uid 5003 gid 601", nil},
		{"ranges", volume.SetAttr{UID: n(5003)}, "", volume.ErrPerm},
		{"ranges", volume.SetAttr{GID: n(0)}, "", volume.ErrPerm},
		{"mask", volume.SetAttr{Mode: n(0o2777)}, "mode 2740", nil},
	} {
		got, err := New(maps[c.of]).Set(c.set)
		if !errors.Is(err, c.err) || err == nil && settext(got) != c.want {
			t.Errorf("%s: %s becomes %s, %v, want %s, %v", c.of, settext(c.set), settext(got), err, c.want, c.err)
		}
	}
}

// TestBound: identity-2. The home changes nothing of what an honest gateway sends, and whatever it
// is sent becomes somebody that the site's clients can be; root only if they can.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom([]string{"nothing", "root", "all", "ranges", "mask"}).Draw(t, "map")
		m, id := New(maps[of]), rapid.SampledFrom([]uint32{0, 1, 7, 8, 42, 99, 100, 101, 102, 599, 600, 601, 602, 999, 1000, 1009, 1010,
			4999, 5000, 5009, 5010, 65534, 1<<32 - 1})
		c := volume.Caller{UID: id.Draw(t, "uid"), GID: id.Draw(t, "gid"), Groups: rapid.SliceOfN(id, 0, 3).Draw(t, "groups"),
			Mask: rapid.Uint32Max(0o777).Draw(t, "mask")}
		if honest := m.Caller(c); text(m.Bound(honest)) != text(honest) || m.Bound(honest).Mask != honest.Mask {
			t.Fatalf("%s: %s was sent, and becomes %s", of, text(honest), text(m.Bound(honest)))
		}
		b := m.Bound(c)
		if of != "nothing" && of != "mask" && (b.UID == 0 || b.GID == 0 || slices.Contains(b.Groups, 0)) {
			t.Fatalf("%s: %s becomes %s", of, text(c), text(b))
		}
		if m != nil && b.Mask != m.mask {
			t.Fatalf("%s: the mask is %o", of, b.Mask)
		}
		if of == "ranges" && b.UID != 7 && b.UID != 42 && (b.UID < 5000 || b.UID > 5009) {
			t.Fatalf("user %d becomes %d, whom clients cannot be", c.UID, b.UID)
		}
	})
}

func text(c volume.Caller) string {
	if c.Groups == nil {
		c.Groups = []uint32{}
	}
	return fmt.Sprintf("%d:%d%v", c.UID, c.GID, c.Groups)
}

func settext(s volume.SetAttr) (out string) {
	add := func(name, format string, v *uint32) {
		if v == nil {
			return
		}
		if out != "" {
			out += " "
		}
		out += name + " " + fmt.Sprintf(format, *v)
	}
	add("uid", "%d", s.UID)
	add("gid", "%d", s.GID)
	add("mode", "%o", s.Mode)
	return out
}

// caller reads user:group[groups].
func caller(t *testing.T, s string) (c volume.Caller) {
	t.Helper()
	head, tail, _ := strings.Cut(strings.TrimSuffix(s, "]"), "[")
	if n, _ := fmt.Sscanf(head, "%d:%d", &c.UID, &c.GID); n < 2 {
		t.Fatal(s)
	}
	for _, g := range strings.Fields(tail) {
		id, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		c.Groups = append(c.Groups, uint32(id))
	}
	return c
}
