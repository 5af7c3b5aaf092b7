// SPDX-License-Identifier: Apache-2.0

// Package events fills the events of a watch with records.
package events

import (
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// Fill decodes the record of an event that is no deletion into it, or sets why that fails. It
// reports whether the event's kind is one of which events are sent: the indexes are not.
func Fill(e *federation.Event, decode func(rec any) error) bool {
	switch e.Kind {
	case federation.KindControl:
		e.Control = fill[federation.Control](e, decode)
	case federation.KindVolume:
		e.Volume = fill[federation.Volume](e, decode)
	case federation.KindSite:
		e.Site = fill[federation.Site](e, decode)
	case federation.KindAlive:
		e.Alive = fill[federation.Alive](e, decode)
	case federation.KindAdmission:
		e.Admission = fill[federation.Admission](e, decode)
	case federation.KindKeyring:
		e.Keyring = fill[federation.Keyring](e, decode)
	case federation.KindObserved:
		e.Observed = fill[federation.Observed](e, decode)
	case federation.KindClaim:
		e.Claim = fill[federation.Claim](e, decode)
	case federation.KindAttachment:
		e.Attachment = fill[federation.Attachment](e, decode)
	case federation.KindLost:
		e.Lost = fill[federation.Lost](e, decode)
	case federation.KindPurged:
		e.Purged = fill[federation.Purge](e, decode)
	case federation.KindCharter:
		e.Charter = fill[federation.Charter](e, decode)
	case federation.KindPaper:
		e.Paper = fill[paper.Paper](e, decode)
	default:
		return false
	}
	return true
}

func fill[T any](e *federation.Event, decode func(rec any) error) *T {
	if e.Deleted {
		return nil
	}
	v := new(T)
	if e.Err = decode(v); e.Err != nil {
		return nil
	}
	return v
}
