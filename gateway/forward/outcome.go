// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Outcomes that are not the volume's.
var (
	// ErrRegister reports that nothing was executed: the caller must register with this home in
	// this epoch, or register anew, before it changes anything.
	ErrRegister = errors.New("caller's registration is not its newest with this home in this epoch")
)

// outcomes are numbered by their index. The numbers are part of the protocol between gateways, so
// entries are only added at the end.
var outcomes = []error{
	nil, volume.ErrNotExist, volume.ErrExist, volume.ErrNotDir, volume.ErrIsDir, volume.ErrNotEmpty, volume.ErrNameTooLong,
	volume.ErrInvalid, volume.ErrTooBig, volume.ErrTooManyLinks, volume.ErrNoSpace, volume.ErrReadOnly, volume.ErrAccess,
	volume.ErrPerm, volume.ErrStale, volume.ErrNoXattr, volume.ErrXattrTooBig, volume.ErrNoData, volume.ErrLocked,
	volume.ErrGrace, volume.ErrNoGrace, volume.ErrDelay, volume.ErrIO, volume.ErrUnknown, journal.ErrNotHome, ErrRegister,
	volume.ErrLate,
}

// setOutcome puts err into a reply. For an error that is none of the outcomes, the operation's
// effect is not known.
func setOutcome(reply *forwardpb.CallReply, err error) {
	if err == nil {
		return
	}
	reply.Detail = err.Error()
	var held *volume.LockConflict
	if errors.As(err, &held) {
		reply.Lock = fromLock(held.Held)
	}
	for i, known := range slices.Backward(outcomes) { // the later ones are narrower
		if known != nil && errors.Is(err, known) {
			reply.Outcome = uint32(i)
			return
		}
	}
	setOutcome(reply, fmt.Errorf("%w: %v", volume.ErrUnknown, err))
}

// outcome returns the error that setOutcome put in.
func outcome(reply *forwardpb.CallReply) error {
	n := int(reply.GetOutcome())
	switch {
	case n == 0:
		return nil
	case n >= len(outcomes):
		return fmt.Errorf("%w: home answers with outcome %d, which this version does not know: upgrade this gateway", volume.ErrUnknown, n)
	case reply.GetLock() != nil:
		return &volume.LockConflict{Held: toLock(reply.GetLock())}
	}
	return fmt.Errorf("%w (at home: %s)", outcomes[n], reply.GetDetail())
}
