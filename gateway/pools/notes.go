// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

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
	// Token was written to the pool, and Next is, or is about to be: an older one is of a pool that
	// went back.
	Token string `json:"token,omitempty"`
	Next  string `json:"next,omitempty"`
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
	keysFolder   = "keys"   // of the main pool
	notesName    = "places.json"
	notesTemp    = "places.new"
	tokenName    = "token" // of the folder of the probe
	tokenTemp    = "token.new"
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

// at returns what is noted of a folder, and whether anything is noted at all.
func (p *Pools) at(folder string) (at place, noting bool) {
	p.noting.Lock()
	defer p.noting.Unlock()
	if p.notes != nil {
		at = p.notes.Folders[folder]
	}
	return at, p.notes != nil
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
	if err != nil || len(p.all) == 1 && !slices.Contains(there, notesFolder) {
		return nil, err
	}
	// With several pools it is there, or an error: it may be in a dataset that cannot be used.
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
	d := &decisions{notes: noted.clone(), first: noted == nil, changed: changed, back: p.Main().Rewound(notesFolder)}
	folders := maps.Clone(found)
	for folder := range d.notes.Folders {
		folders[folder] = found[folder]
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		p.decide(d, folder, folders[folder])
	}
	for _, one := range p.all {
		next, err := cachepool.NewID(p.cfg.Random)
		if err != nil {
			return err
		}
		d.notes.Pools[one.id()] = known{Name: one.Name, Token: d.notes.Pools[one.id()].Token, Next: next.String()}
	}
	if err := p.store(d.notes); err != nil {
		return err
	}
	p.notes = d.notes
	if err := p.writeTokens(); err != nil {
		return err
	}
	if d.back != nil { // it is noted of each folder
		if err := p.Main().Settled(notesFolder, d.back); err != nil {
			return err
		}
	}
	for folder, why := range d.notes.Rewound {
		p.rewound[folder] = errors.New(why)
	}
	for _, l := range d.aside {
		if err := p.setAside(l.on, l.folder); err != nil {
			p.cfg.Logger.Error("a folder that does not count is not used", "error", err)
			continue
		}
		if err := p.note(func(n *notes) { n.Folders[l.folder] = n.Folders[l.folder].without(l.on.id()) }); err != nil {
			return err
		}
	}
	return nil
}

// without is a place of which that pool has nothing any more that does not count.
func (at place) without(pool string) place {
	if at.To == pool {
		at.To = ""
	}
	if at.From == pool {
		at.From = ""
	}
	return at
}

// writeTokens writes a new token to each pool but the main one, and notes that.
func (p *Pools) writeTokens() error {
	for _, one := range p.all[1:] {
		dir, err := one.Volume(probeName)
		if err == nil {
			err = cachepool.Replace(dir, tokenTemp, tokenName, []byte(p.notes.Pools[one.id()].Next))
		}
		if err != nil {
			return fmt.Errorf("write to pool %s: %w", one.Name, err)
		}
	}
	return p.note(func(n *notes) {
		for _, one := range p.all {
			n.Pools[one.id()] = known{Name: one.Name, Token: n.Pools[one.id()].Next}
		}
	})
}

// token returns a pool's token; "": it has none.
func (p *Pool) token() (string, error) {
	dir, err := p.Volume(probeName)
	if err != nil {
		return "", err
	}
	b, err := cachepool.ReadAll(dir, tokenName)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return string(b), err
}

// decisions are what begin decides.
type decisions struct {
	notes   *notes
	first   bool             // nothing was noted before
	changed map[*Pool]string // why what a pool has may have lost something
	back    error            // why the notes may have gone back; nil: nothing tells so
	aside   []leftover
}

// leftover is a folder that does not count, and is to be set aside.
type leftover struct {
	folder string
	on     *Pool
}

// decide decides which of a folder's pools has the one that counts, and what becomes of others.
// What a move has left, and is not needed any more, stays for now: see tidy.
func (p *Pools) decide(d *decisions, folder string, on []*Pool) {
	at := d.notes.Folders[folder]
	if strings.HasPrefix(folder, SalvagePrefix) { // it counts for nobody
		delete(d.notes.Folders, folder)
		if len(on) > 0 {
			d.notes.Folders[folder] = place{Pool: on[0].id()}
			p.where[folder] = on[0]
		}
		return
	}
	chosen := p.opened(at.Pool)
	noted := chosen != nil // whether the folder was found there or not: it may be unusable for a while
	for _, one := range on {
		known := d.first || at != place{} || one == p.Main()
		if chosen == nil && known && one.id() != at.To && one.id() != at.From { // those are not whole, or not the newest
			chosen = one
		}
	}
	found := slices.Contains(on, chosen)
	why := ""
	switch {
	case !found:
	case d.changed[chosen] != "":
		why = d.changed[chosen]
	case d.back != nil:
		why = fmt.Sprintf("what was noted of its pool may have gone back: %v", d.back)
	case !noted && at.Pool != "":
		why = fmt.Sprintf("it is on pool %s, and was on pool %s", chosen.Name, d.called(at.Pool))
	case !noted && len(on) > 1:
		why = fmt.Sprintf("it is on pool %s and on others, and nothing says which one counts", chosen.Name)
	}
	if why != "" {
		d.notes.Rewound[folder] = why
	}
	for _, one := range on {
		left := noted && d.back == nil && (one.id() == at.To || one.id() == at.From)
		if one != chosen && !(left && found && d.changed[chosen] == "" && chosen.Rewound(folder) == nil) {
			d.aside = append(d.aside, leftover{folder, one})
		}
	}
	if chosen != nil {
		at.Pool = chosen.id()
		at = at.without(at.Pool)
		p.where[folder] = chosen
		if !found {
			p.missing[folder] = true
		}
	}
	if at != (place{}) {
		d.notes.Folders[folder] = at
	}
}

// called returns the name that a pool had last.
func (d *decisions) called(id string) string {
	if was, ok := d.notes.Pools[id]; ok {
		return was.Name
	}
	return id
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
			if folder != notesFolder && folder != probeName && folder != keysFolder {
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
		default:
			token, err := one.token()
			if err != nil {
				return nil, fmt.Errorf("read the token of pool %s: %w", one.Name, err)
			}
			if token != was.Token && token != was.Next {
				out[one] = fmt.Sprintf("pool %s went back: it has an earlier token", one.Name)
			}
		}
	}
	return out, nil
}
