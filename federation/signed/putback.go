// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// Asked is what somebody asks a gatekeeper to write at a key.
type Asked struct {
	By    pki.Identity
	Now   time.Time
	Key   string
	Value []byte // nil: it is to be deleted
	// There is what is at the key; Read: that is known.
	There []byte
	Read  bool
	// Refused: a gateway says that the registry went back.
	Refused bool
	// Look has other records, as they are.
	Look Lookup
}

// tolerance is how much clocks may differ.
const tolerance = time.Hour

// handsOn reports whether what is asked for was signed by somebody else, or long ago.
func (a Asked) handsOn(by pki.Identity, at time.Time) bool {
	return by != a.By || a.By.Part == pki.PartGateway && a.Now.Sub(at) > tolerance
}

// Admit is gatekeeper-11: it returns why what is asked for is refused. done: it is allowed, and
// needs no other judgement.
func (s *Seal) Admit(a Asked) (done bool, err error) {
	switch {
	case !Covers(a.Key):
		return false, nil
	case a.Value == nil: // what nobody may have written is in the way
		return a.Read && a.There != nil && a.By.Part == pki.PartGateway &&
			IsForgery(s.Check(a.Key, a.There, Known{First: true}, a.Look)), nil
	case !Has(a.Value) && s.Since().IsZero():
		return false, nil
	case !Has(a.Value):
		return false, fmt.Errorf("it has no signature, and the charter asks for one since %s: upgrade the program that writes it",
			s.Since().Format(time.RFC3339))
	}
	by, at, err := s.By(a.Key, a.Value)
	switch {
	case err != nil:
		return false, err
	case a.By.Part == pki.PartAdministrator && a.Refused:
		return false, nil // he brings forward what others know
	case a.handsOn(by, at) && KindOf(a.Key) == federation.KindPaper: // its rules judge who asks, and when
		return false, fmt.Errorf("it is signed by %s at %s, and a paper is written by who says it", by, at.Format(time.RFC3339))
	case a.handsOn(by, at):
		return true, s.PutsBack(a)
	case at.Sub(a.Now).Abs() > tolerance:
		return false, fmt.Errorf("it was signed at %s, and now it is %s: set the clock", at.Format(time.RFC3339),
			a.Now.Format(time.RFC3339))
	}
	n, was := s.Number(a.Key, a.Value), uint64(0)
	if n > 0 && !IsForgery(s.Check(a.Key, a.There, Known{First: true}, a.Look)) {
		was = s.Number(a.Key, a.There)
	}
	if n > 0 && (n <= was || n > uint64(a.Now.Add(tolerance).UnixMilli())) {
		return false, fmt.Errorf("its signature says that it is write %d of it, and %d was the last", n, was)
	}
	// An administrator endorses what has no signature of who may write it, as it is.
	return a.By.Part == pki.PartAdministrator && KindOf(a.Key) != kindReconciled && SameRecord(a.Value, a.There) &&
		(!Settled(a.There) || s.Since().IsZero()), nil
}

// PutsBack judges a gateway that puts back what was signed before (signed-6): where what is there
// is forged, or is an earlier write of the record, or was deleted although its volume was not
// purged.
func (s *Seal) PutsBack(a Asked) error {
	by, _, err := s.By(a.Key, a.Value)
	if err != nil {
		return err
	}
	if a.By.Part != pki.PartGateway { // also one whose own site's record was overwritten
		return fmt.Errorf("it is signed by %s, and only gateways put back what somebody else signed", by)
	}
	look := func(key string) []byte {
		if key == a.Key {
			return a.Value
		}
		return a.Look(key)
	}
	if !a.Read {
		return fmt.Errorf("it is signed by %s", by)
	}
	if err := s.Check(a.Key, a.Value, Known{First: true}, look); err != nil {
		return err
	}
	switch purge := PurgeOf(a.Key); {
	case a.There != nil:
		switch why := s.Check(a.Key, a.There, Known{Value: a.Value}, look); {
		case IsForgery(why):
		case why == nil, !s.Older(a.Key, a.There, a.Value):
			return fmt.Errorf("it is signed by %s, and what is there counts, or may", by)
		default: // what is there is an earlier one
			if err := s.Check(a.Key, a.Value, Known{Value: a.There}, look); err != nil {
				return err
			}
			// Whether it ever was there nobody can be asked: so not who could have made it up.
			if by.Organization == a.By.Organization {
				return fmt.Errorf("it is signed by %s, and another organization's gateway has to put it back", by)
			}
		}
	case !Stays(a.Key):
		return errors.New("it was deleted, and is not put back")
	default:
		if p := a.Look(purge); p != nil && s.Check(purge, p, Known{First: true}, look) == nil {
			return errors.New("its volume was purged")
		}
	}
	return nil
}

// Replaceable reports whether a value that is there is forged, or an earlier write than one that is
// known.
func (s *Seal) Replaceable(key string, there, known []byte, look Lookup) bool {
	return IsForgery(s.Check(key, there, Known{Value: known}, look)) || s.Older(key, there, known)
}

// Judges returns the keys by which Admit judges what is asked for.
func (s *Seal) Judges(a Asked) (keys []string) {
	if !Covers(a.Key) || a.By.Part != pki.PartGateway {
		return nil
	}
	about := func(value []byte) {
		if by, _, err := s.By(a.Key, value); err == nil {
			keys = append(keys, string(federation.KindSite)+"/"+by.Site)
		}
		keys = append(keys, About(a.Key, value)...)
	}
	if a.Value != nil {
		by, at, err := s.By(a.Key, a.Value)
		if err != nil || !a.handsOn(by, at) {
			return nil
		}
		keys = append(keys, a.Key)
		about(a.Value)
	}
	if a.There != nil {
		about(a.There)
	}
	return keys
}
