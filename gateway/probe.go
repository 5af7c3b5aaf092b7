// SPDX-License-Identifier: Apache-2.0

package gateway

import "github.com/weir-storage/weir/cachepool"

// probe is a small file on the pool whose fsync shows that the disk works.
type probe struct {
	file cachepool.File
	n    byte
}

func newProbe(pool cachepool.Pool) (*probe, error) {
	dir, err := pool.Volume("probe")
	if err != nil {
		return nil, err
	}
	f, err := dir.Open("probe")
	if err != nil {
		if f, err = dir.Create("probe"); err != nil {
			return nil, err
		}
	}
	return &probe{file: f}, nil
}

func (p *probe) sync() error {
	p.n++
	if _, err := p.file.WriteAt([]byte{p.n}, 0); err != nil {
		return err
	}
	return p.file.Sync()
}

func (p *probe) close() { _ = p.file.Close() } // nothing of value is in it
