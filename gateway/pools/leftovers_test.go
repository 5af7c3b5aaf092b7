// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnusableForAWhile: a folder that cannot be used when the gateway starts is waited for,
// whatever another pool has of it.
func TestUnusableForAWhile(t *testing.T) {
	for name, other := range map[string]string{"alone": "", "beside a part of it": "to", "beside its former": "from",
		"beside another": "aside"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.must("main", "fast")
			w.wanted[volumeID] = "fast"
			w.write(p, volumeID, "1.seg", "new")
			here, there := p.All()[1].id(), p.Main().id()
			if other != "" {
				w.copy("fast/volumes/"+volumeID, "main/volumes/"+volumeID)
				at := map[string]place{"to": {Pool: here, To: there}, "from": {Pool: here, From: there}, "aside": {Pool: here}}[other]
				if err := p.note(func(n *notes) { n.Folders[volumeID] = at }); err != nil {
					t.Fatal(err)
				}
			}
			w.wanted[volumeID] = "main" // it waits for room
			w.hidden = map[string]string{"fast": volumeID}
			for range 2 {
				p = w.again(p, "main", "fast")
				if d, err := p.Volume(volumeID); err == nil {
					t.Fatalf("it is opened in %s", d.Path())
				}
				all, err := p.ListVolumes()
				if err != nil || slices.Contains(all, volumeID) || len(all) != min(len(other), 1) {
					t.Errorf("folders %v, %v", all, err)
				}
				if other != "" && w.read(p, all[0])["1.seg"] != "new" { // it may be all that is left
					t.Errorf("set aside are %v", names(w.read(p, all[0])))
				}
				if _, err := os.Stat(filepath.Join(w.at, "main/volumes", volumeID)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("on the other pool: %v", err)
				}
			}
			w.hidden = nil
			p = w.again(p, "main", "fast")
			if got := w.read(p, volumeID); got["1.seg"] != "new" || p.Of(volumeID).Name != "fast" || p.Rewound(volumeID) != nil {
				t.Errorf("later it is on %s with %v, %v", p.Of(volumeID).Name, names(got), p.Rewound(volumeID))
			}
		})
	}
}

// TestNotesThatWentBack: nothing is removed because of notes that may be old.
func TestNotesThatWentBack(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "1.seg", "old")
	if err := p.note(func(n *notes) { n.Folders[volumeID] = place{Pool: p.Main().id(), To: p.All()[1].id()} }); err != nil {
		t.Fatal(err)
	}
	for _, one := range p.All() {
		_ = one.Close()
	}
	w.copy("main/volumes/"+volumeID, "fast/volumes/"+volumeID)
	if err := os.WriteFile(filepath.Join(w.at, "fast/volumes", volumeID, "1.seg"), []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.back = errors.New("rolled back")
	p = w.must("main", "fast")
	w.back = nil
	if why := p.Rewound(volumeID); why == nil || !strings.Contains(why.Error(), "rolled back") {
		t.Errorf("it went back: %v", why)
	}
	all, err := p.ListVolumes()
	if err != nil || len(all) != 2 || w.read(p, all[1])["1.seg"] != "newer" {
		t.Errorf("folders %v, %v", all, err)
	}
	p = w.again(p, "main", "fast")
	if why := p.Rewound(volumeID); why == nil {
		t.Error("that is forgotten")
	}
}

// TestFormerFolderIsNotAdopted: a pool is taken away after a volume moved there, with the former
// folder still there. That one is never opened as the volume, also if it cannot be set aside.
func TestFormerFolderIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "1.seg", "old")
	if err := p.move(t.Context(), volumeID, p.All()[1], movers(nil)); err != nil { // and nothing is tidied
		t.Fatal(err)
	}
	w.write(p, volumeID, "1.seg", "new")
	w.fail["rename "+volumeID] = errors.New("broken")
	w.wanted[volumeID] = ""
	for range 2 {
		p = w.again(p, "main")
		if d, err := p.Volume(volumeID); err == nil {
			t.Fatalf("it is opened in %s, with %v", d.Path(), names(w.read(p, volumeID)))
		}
	}
	clear(w.fail)
	p = w.again(p, "main")
	if got := w.read(p, volumeID); len(got) > 0 {
		t.Errorf("it begins with %v", got)
	}
	w.wanted[volumeID] = "main"
	p = w.again(p, "main", "fast")
	if got := p.Of(volumeID).Name; got != "main" {
		t.Errorf("when the pool is back it is on %s", got)
	}
	if all, err := p.ListVolumes(); err != nil || len(all) != 3 { // and what each pool had of it
		t.Errorf("folders %v, %v", all, err)
	}
}

// TestMoveOfWhatWentBack: the former folder went back before it was copied, and that is told later.
func TestMoveOfWhatWentBack(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.onMain(p)
	w.write(p, volumeID, "1.seg", "old")
	if err := p.move(t.Context(), volumeID, p.All()[1], movers(nil)); err != nil {
		t.Fatal(err)
	}
	w.gone = map[string]error{"main": errors.New("rolled back")}
	clear(p.moved)
	var told []string
	p.tidy(func(volume string, why error) { told = append(told, fmt.Sprint(volume, " ", why)) })
	if len(told) != 1 || told[0] != volumeID+" rolled back" {
		t.Errorf("told is %v", told)
	}
	w.gone = nil
	for range 2 {
		if why := p.Rewound(volumeID); why == nil || !strings.Contains(why.Error(), "rolled back") || p.Of(volumeID).Name != "fast" {
			t.Errorf("on %s: %v", p.Of(volumeID).Name, why)
		}
		if all, err := p.ListVolumes(); err != nil || len(all) != 2 || w.read(p, all[1])["1.seg"] != "old" {
			t.Errorf("folders %v, %v", all, err)
		}
		p = w.again(p, "main", "fast")
	}
}
