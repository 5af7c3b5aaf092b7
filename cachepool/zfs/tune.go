// SPDX-License-Identifier: Apache-2.0

package zfs

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// tuner sets properties of volumes' datasets, one after the other. Commands may hang.
type tuner struct {
	wake chan struct{} // with room for one

	mu     sync.Mutex
	wanted map[string]cachepool.Tuning // by volume
	todo   map[string]bool             // volumes whose properties may not be as wanted
}

// tuned is a property of a volume's dataset: which of its properties the gateway has set. Others
// are its administrator's.
const tuned = "org.weir:tuned"

// tuneAgain is when a property is set again that could not be set.
const tuneAgain = time.Minute

// Tune implements cachepool.Volumes. Properties are set while Watch runs.
func (p *Pool) Tune(uuid string, t cachepool.Tuning) {
	p.tuner.mu.Lock()
	defer p.tuner.mu.Unlock()
	p.tuner.wanted[uuid], p.tuner.todo[uuid] = t, true // also if it was asked for before: the dataset may be another
	select {
	case p.tuner.wake <- struct{}{}:
	default: // it is awake already
	}
}

// RemoveVolume implements cachepool.Volumes.
func (p *Pool) RemoveVolume(uuid string) error {
	p.tuner.mu.Lock()
	delete(p.tuner.wanted, uuid)
	delete(p.tuner.todo, uuid)
	p.tuner.mu.Unlock()
	return p.Pool.RemoveVolume(uuid)
}

// keepTuned sets what Tune asks for until ctx ends.
func (p *Pool) keepTuned(ctx context.Context) {
	again := time.NewTicker(tuneAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.tuner.wake:
		case <-again.C:
		}
		p.tuner.mu.Lock()
		todo := slices.Sorted(maps.Keys(p.tuner.todo))
		clear(p.tuner.todo)
		wanted := maps.Clone(p.tuner.wanted)
		p.tuner.mu.Unlock()
		for _, volume := range todo {
			if ctx.Err() != nil {
				return
			}
			if err := p.tune(ctx, volume, wanted[volume]); err != nil && ctx.Err() == nil {
				p.cfg.Log.Warn("properties of a volume's dataset cannot be set; trying again", "volume", volume, "error", err)
				p.tuner.mu.Lock()
				p.tuner.todo[volume] = true
				p.tuner.mu.Unlock()
			}
		}
	}
}

// properties returns what t wants, by name; "": what is inherited.
func propertiesOf(t cachepool.Tuning) map[string]string {
	out := map[string]string{"primarycache": strings.ToLower(t.ARC), "secondarycache": strings.ToLower(t.L2ARC),
		"logbias": strings.ToLower(t.Log), "recordsize": ""}
	if t.RecordSize > 0 {
		out["recordsize"] = strconv.Itoa(t.RecordSize)
	}
	return out
}

// tune sets the properties of a volume's dataset that are not as t wants. Those that the gateway
// had set, and that t leaves open, are inherited again.
func (p *Pool) tune(ctx context.Context, volume string, t cachepool.Tuning) error {
	name, _, err := p.folders.of(volume)
	if err != nil || name == "" {
		return err // it is gone
	}
	dataset := p.folders.above + "/" + name
	has, err := p.cfg.Tools.properties(ctx, dataset)
	if err != nil {
		return err
	}
	was := strings.Fields(strings.Trim(has[tuned], "-"))
	var set []string
	for _, property := range slices.Sorted(maps.Keys(propertiesOf(t))) {
		want := propertiesOf(t)[property]
		switch mine := slices.Contains(was, property); {
		case want != "" && (!mine || has[property] != want):
			if _, err := p.cfg.Tools.zfs(ctx, "set", property+"="+want, dataset); err != nil {
				return err
			}
			p.cfg.Log.Info("dataset is tuned", "dataset", dataset, "property", property, "was", has[property], "is", want)
		case want == "" && mine:
			if _, err := p.cfg.Tools.zfs(ctx, "inherit", property, dataset); err != nil {
				return err
			}
			p.cfg.Log.Info("dataset is tuned", "dataset", dataset, "property", property, "was", has[property], "is", "inherited")
		}
		if want != "" {
			set = append(set, property)
		}
	}
	if slices.Equal(was, set) {
		return nil
	}
	_, err = p.cfg.Tools.zfs(ctx, "set", tuned+"="+strings.Join(set, " "), dataset)
	return err
}
