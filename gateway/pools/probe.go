// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"io/fs"

	"github.com/weir-storage/weir/cachepool"
)

// probe is a small file on a pool whose fsync shows that the disk works. A file whose fsync failed
// never syncs again (protocol-3), so the next look is at a new one: the disk may be well.
type probe struct {
	pool cachepool.Pool
	file cachepool.File // nil: the next sync makes it
	n    byte
}

const probeName = "probe"

// Probe writes and syncs a small file on the pool. One goroutine at a time may call it.
func (p *Pool) Probe() error { return p.probe.sync() }

// CloseProbe ends the use of the file. Nothing of value is in it.
func (p *Pool) CloseProbe() { p.probe.close() }

func (p *probe) sync() error {
	if p.file == nil {
		if err := p.create(); err != nil {
			return err
		}
	}
	p.n++
	_, err := p.file.WriteAt([]byte{p.n}, 0)
	if err == nil {
		err = p.file.Sync()
	}
	if err != nil {
		p.close()
	}
	return err
}

func (p *probe) create() error {
	dir, err := p.pool.Volume(probeName)
	if err != nil {
		return err
	}
	if err := p.pool.Settled(probeName, p.pool.Rewound(probeName)); err != nil { // nothing is lost here
		return err
	}
	if err := dir.Remove(probeName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.file, err = dir.Create(probeName)
	if err != nil {
		p.file = nil
	}
	return err
}

func (p *probe) close() {
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}
