// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/weir-storage/weir/cachepool"
)

// notes say where folders are. They are a file of the main pool, which is replaced as a whole.
type notes struct {
	Version int               `json:"version"`
	Pools   map[string]known  `json:"pools"`   // by incarnation
	Folders map[string]place  `json:"folders"` // by name
	Rewound map[string]string `json:"rewound"` // why a folder may have lost something
}

// known is a pool when it was last opened.
type known struct {
	Name string `json:"name"` // that people gave it then
	Boot uint64 `json:"boot"`
}

// place is where a folder is. Pools are named by their incarnations.
type place struct {
	Pool string `json:"pool"`
	// To is the pool that has the beginnings of a folder which will replace it; "": none.
	To string `json:"to,omitempty"`
	// From is the pool that has the folder which it has replaced; "": none.
	From string `json:"from,omitempty"`
}

// id is what the notes call a pool.
func (p *Pool) id() string { return p.Incarnation().String() }

const (
	notesVersion = 1
	notesFolder  = "places" // of the main pool
	notesName    = "places.json"
	notesTemp    = "places.new"
)

// note changes the notes, durably. After an error they are as before in memory, and may be as after
// on the disk.
func (p *Pools) note(change func(n *notes)) error {
	p.noting.Lock()
	defer p.noting.Unlock()
	if p.notes == nil {
		return nil
	}
	next := p.notes.clone()
	change(next)
	if err := p.store(next); err != nil {
		return fmt.Errorf("note on pool %s which volume is on which pool: %w", p.Main().Name, err)
	}
	p.notes = next
	return nil
}

// clone returns a copy. The clone of none is empty.
func (n *notes) clone() *notes {
	out := &notes{Version: notesVersion, Pools: map[string]known{}, Folders: map[string]place{}, Rewound: map[string]string{}}
	if n != nil {
		maps.Copy(out.Pools, n.Pools)
		maps.Copy(out.Folders, n.Folders)
		maps.Copy(out.Rewound, n.Rewound)
	}
	return out
}

// at returns what is noted of a folder.
func (p *Pools) at(folder string) (at place) {
	p.noting.Lock()
	defer p.noting.Unlock()
	if p.notes != nil {
		at = p.notes.Folders[folder]
	}
	return at
}

// opened returns the pool of that incarnation; nil: it is not open.
func (p *Pools) opened(id string) *Pool {
	i := slices.IndexFunc(p.all, func(one *Pool) bool { return one.id() == id })
	if i < 0 {
		return nil
	}
	return p.all[i]
}

func (p *Pools) store(n *notes) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	dir, err := p.Main().Volume(notesFolder)
	if err != nil {
		return err
	}
	return cachepool.Replace(dir, notesTemp, notesName, text)
}

// load reads the notes; nil: there are none.
func (p *Pools) load() (*notes, error) {
	there, err := p.Main().ListVolumes()
	if err != nil || !slices.Contains(there, notesFolder) {
		return nil, err
	}
	dir, err := p.Main().Volume(notesFolder)
	if err != nil {
		return nil, err
	}
	text, err := cachepool.ReadAll(dir, notesName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	n := &notes{Pools: map[string]known{}, Folders: map[string]place{}, Rewound: map[string]string{}}
	if err == nil {
		err = json.Unmarshal(text, n)
	}
	if err == nil && n.Version > notesVersion {
		err = fmt.Errorf("%w: version %d, this program knows up to %d: upgrade this program", cachepool.ErrInvalid, n.Version, notesVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of pool %s: %w", notesName, p.Main().Name, err)
	}
	return n, nil
}

// begin finds the folders, and brings pools and notes in line (pools-2, pools-3). What is decided
// is noted before anything is done, so that it is decided once.
func (p *Pools) begin() error {
	noted, err := p.load()
	if err != nil {
		return err
	}
	if noted == nil && len(p.all) == 1 {
		there, err := p.Main().ListVolumes()
		for _, folder := range there {
			p.set(folder, p.Main())
		}
		return err
	}
	found, err := p.find()
	if err != nil {
		return err
	}
	changed, err := p.changed(noted)
	if err != nil {
		return err
	}
	d := &decisions{notes: noted.clone(), changed: changed, back: p.Main().Rewound(notesFolder), now: p.cfg.Now().Unix()}
	folders := maps.Clone(found)
	for folder := range d.notes.Folders {
		folders[folder] = found[folder]
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		p.decide(d, folder, folders[folder])
	}
	for _, one := range p.all {
		d.notes.Pools[one.id()] = known{one.Name, one.Boot()}
	}
	if err := p.store(d.notes); err != nil {
		return err
	}
	p.notes = d.notes
	if d.back != nil { // it is noted of each folder
		if err := p.Main().Settled(notesFolder, d.back); err != nil {
			return err
		}
	}
	for folder, why := range d.notes.Rewound {
		p.rewound[folder] = errors.New(why)
	}
	p.carryOut(d)
	return nil
}

// decisions are what begin decides.
type decisions struct {
	notes   *notes
	changed map[*Pool]string // why what a pool has may have lost something
	back    error            // why the notes may have gone back; nil: nothing tells so
	now     int64            // seconds since 1970
	todo    []leftover
}

// leftover is a folder that does not count.
type leftover struct {
	folder string
	on     *Pool
	aside  string // the name that it gets; "": it is removed
}

// decide decides which of a folder's pools has the one that counts, and what becomes of others.
func (p *Pools) decide(d *decisions, folder string, on []*Pool) {
	at := d.notes.Folders[folder]
	chosen := p.opened(at.Pool)
	noted := chosen != nil // whether the folder was found there or not: it may be unusable for a while
	for _, one := range on {
		if chosen == nil && one.id() != at.To && one.id() != at.From { // those are not whole, or not the newest
			chosen = one
		}
	}
	why := ""
	switch {
	case chosen == nil:
	case d.changed[chosen] != "":
		why = d.changed[chosen]
	case d.back != nil && len(on) > 1:
		why = fmt.Sprintf("what was noted of its pool may have gone back: %v", d.back)
	case !noted && at.Pool != "":
		why = fmt.Sprintf("it is on pool %s, and was on pool %s", chosen.Name, d.called(at.Pool))
	case !noted && len(on) > 1:
		why = fmt.Sprintf("it is on pool %s and on others, and nothing says which one counts", chosen.Name)
	}
	if why != "" && slices.Contains(on, chosen) {
		d.notes.Rewound[folder] = why
	}
	for _, one := range on {
		moved := one.id() == at.To || one.id() == at.From
		switch {
		case one == chosen:
		case moved && noted && d.back == nil:
			d.todo = append(d.todo, leftover{folder: folder, on: one})
		default:
			aside := fmt.Sprintf("%s%s-%s-%d", SalvagePrefix, folder, one.Name, d.now)
			d.todo = append(d.todo, leftover{folder, one, aside})
			d.notes.Folders[aside] = place{Pool: one.id()}
			if one.id() == at.To {
				at.To = ""
			}
			if one.id() == at.From {
				at.From = ""
			}
		}
	}
	if chosen != nil {
		at.Pool = chosen.id()
		p.where[folder] = chosen
		if !slices.Contains(on, chosen) {
			p.missing[folder] = true
		}
	}
	d.notes.Folders[folder] = at
}

// called returns the name that a pool had last.
func (d *decisions) called(id string) string {
	if was, ok := d.notes.Pools[id]; ok {
		return was.Name
	}
	return id
}

// carryOut removes leftovers, and sets them aside. One that cannot go stays, and is never opened.
func (p *Pools) carryOut(d *decisions) {
	for _, l := range d.todo {
		logger := p.cfg.Logger.With("folder", l.folder, "pool", l.on.Name)
		if l.aside == "" {
			if err := p.abandon(l.folder); err != nil {
				logger.Warn("what is left of a move stays for now", "error", err)
			}
			continue
		}
		if err := l.on.RenameVolume(l.folder, l.aside); err != nil {
			logger.Error("a folder that does not count cannot be set aside, and is not used", "error", err)
			continue
		}
		p.set(l.aside, l.on)
		logger.Warn("a folder is set aside: it does not count, or its pool is not there", "aside", l.aside)
	}
}

// find returns the pools that have each folder.
func (p *Pools) find() (map[string][]*Pool, error) {
	found := map[string][]*Pool{}
	for _, one := range p.all {
		there, err := one.ListVolumes()
		if err != nil {
			return nil, err
		}
		for _, folder := range there {
			if folder != notesFolder && folder != probeName {
				found[folder] = append(found[folder], one)
			}
		}
	}
	return found, nil
}

// changed returns why folders of a pool may have lost something, for pools of which that is so. It
// fails if another pool was the main one.
func (p *Pools) changed(noted *notes) (map[*Pool]string, error) {
	out := map[*Pool]string{}
	back := p.Main().Rewound(notesFolder)
	for _, one := range p.all[1:] {
		there, err := one.ListVolumes()
		if err != nil {
			return nil, err
		}
		if noted == nil && slices.Contains(there, notesFolder) {
			return nil, fmt.Errorf("pool: %s: pool %s was the main one, and knows which volume is on which pool: write it under pool, and "+
				"the others under pools", p.Main().Name, one.Name)
		}
		var was known
		ok := false
		if noted != nil {
			was, ok = noted.Pools[one.id()]
		}
		switch {
		case back != nil:
			out[one] = fmt.Sprintf("what was noted of pool %s may have gone back: %v", one.Name, back)
		case !ok:
			out[one] = fmt.Sprintf("pool %s was not one of this gateway's pools, or is not what it was", one.Name)
		case one.Boot() <= was.Boot:
			out[one] = fmt.Sprintf("pool %s went back: it was opened %d times, and before that %d times", one.Name, one.Boot(), was.Boot)
		}
	}
	return out, nil
}
