// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
)

// lookEvery is how often schedules are looked at, at least: a clock may be set meanwhile, or a key
// may be due that can not follow yet.
const lookEvery = time.Minute

// schedule is when the schedules of volumes for their data keys are to be looked at.
type schedule struct {
	mu   sync.Mutex
	wait time.Duration // from when the first of them was looked at; 0: no volume has one
}

// Look returns a channel from which can be received when schedules are to be looked at by Share
// again; nil: no volume has one.
func (k *Keeper) Look() <-chan time.Time {
	k.looking.mu.Lock()
	wait := k.looking.wait
	k.looking.wait = 0 // who has one says so again
	k.looking.mu.Unlock()
	if wait == 0 {
		return nil
	}
	return k.After(wait)
}

// lookAgain has Look wait no longer than until the newest data key of a volume is as old as its
// schedule lets it get.
func (k *Keeper) lookAgain(v federation.Volume) {
	every := time.Duration(v.Spec.Encryption.RotateEvery)
	if every <= 0 {
		return
	}
	wait := lookEvery
	if e := k.View.Volume(v.UUID); e != nil {
		if is, known := e.NewestKey(); known {
			if left := every - k.Now().Sub(is.Since); left > 0 {
				wait = min(wait, left)
			}
		}
	}
	k.looking.mu.Lock()
	defer k.looking.mu.Unlock()
	if k.looking.wait == 0 || wait < k.looking.wait {
		k.looking.wait = wait
	}
}
