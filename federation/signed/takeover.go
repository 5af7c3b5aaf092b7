// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// Takeover is what a person says who gives up what only a volume's other copies have: this gateway
// begins an epoch by force, in place of that control record.
type Takeover struct {
	Volume  string // UUID
	Gateway string // that takes over
	// Epoch and Change are those of the control record that he saw, and that is replaced.
	Epoch, Change uint64
}

const takeoverKey = "takeover/"

func (t Takeover) statement() pki.Statement {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", t.Volume, t.Gateway, t.Epoch, t.Change))
	return pki.Statement{Key: fmt.Sprintf("%s%s/%s/%d", takeoverKey, t.Volume, t.Gateway, t.Epoch), Number: t.Change, Digest: sum[:]}
}

// Say returns a person's word for a takeover by force: a signature with this process's certificate.
func (s *Seal) Say(t Takeover) (string, error) {
	if !s.Signs() {
		return "", errors.New("a takeover by force needs a person's word, and this certificate has no part: use one of part person")
	}
	return s.creds.Sign(t.statement())
}

// Said returns what a word says, who said it, and when by his clock.
func (s *Seal) Said(word string) (t Takeover, who pki.Identity, at time.Time, err error) {
	if word == "" {
		return t, who, at, errors.New("there is no person's word for it")
	}
	st, who, err := s.creds.Verified(word)
	if err != nil {
		return t, who, at, err
	}
	parts := strings.Split(strings.TrimPrefix(st.Key, takeoverKey), "/")
	if !strings.HasPrefix(st.Key, takeoverKey) || len(parts) != 3 {
		return t, who, at, fmt.Errorf("what %s signed is about %s", who, st.Key)
	}
	t = Takeover{Volume: parts[0], Gateway: parts[1], Change: st.Number}
	if t.Epoch, err = strconv.ParseUint(parts[2], 10, 64); err != nil || !slices.Equal(t.statement().Digest, st.Digest) {
		return t, who, at, fmt.Errorf("what %s signed says nothing of a takeover", who)
	}
	return t, who, time.Unix(st.At, 0), nil
}

// Allowed returns why a word does not allow a takeover now; nil: a person of the volume's owner
// said so, of exactly that, and not long ago.
func (s *Seal) Allowed(word string, t Takeover, owner string, now time.Time) error {
	said, who, at, err := s.Said(word)
	switch {
	case err != nil:
		return err
	case who.Part != pki.PartPerson || who.Organization != owner:
		return fmt.Errorf("%s says so, and the volume belongs to %q: a person of that says it", who, owner)
	case said != t:
		return fmt.Errorf("%s says so of gateway %s, after epoch %d and change %d, and now it is gateway %s, epoch %d and change %d: "+
			"look again, and ask again", who, said.Gateway, said.Epoch, said.Change, t.Gateway, t.Epoch, t.Change)
	case now.Sub(at).Abs() > tolerance:
		return fmt.Errorf("%s said so at %s, and now it is %s: ask again, or set the clock", who, at.UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// words checks that a person said so of each epoch that began by force, as far as it is not known:
// one of the volume's owner, or an administrator who decided between branches. A record for which
// nobody did is forged, whichever of those that it came from is known. Whose authority a word is of
// may have been forgotten since, and clocks differ: then the record only does not follow.
func (c *checked) words(v *federation.Volume, ve envelope, was, is *federation.Control) error {
	used, decided := map[string]bool{}, -1
	for i, e := range is.History {
		_, who, _, err := c.Said(e.Word)
		if e.Forced && err == nil && who.Part == pki.PartAdministrator && !slices.Contains(was.History, e) {
			decided = i // what was of the branch that he kept, who knows another could not know
		}
	}
	for i, e := range is.History {
		if !e.Forced || slices.Contains(was.History, e) {
			used[e.Word] = true
			continue
		}
		t, who, at, err := c.Said(e.Word)
		switch {
		case err != nil && e.Word != "":
			return c.deny("epoch %d began by force: %v", e.Epoch, err)
		case err != nil:
			return c.never("epoch %d began by force: %v", e.Epoch, err)
		case who.Part == pki.PartAdministrator:
		case who.Part != pki.PartPerson || who.Organization != v.Owner && !c.ownedBy(ve, who.Organization, at):
			return c.never("epoch %d began by force, by the word of %s, and the volume belongs to %q", e.Epoch, who, v.Owner)
		}
		if used[e.Word] || i >= decided && !c.about(t, was, is, i) {
			return c.never("epoch %d began by force, and the word of %s is about another", e.Epoch, who)
		}
		if i >= decided && c.outdated(at) {
			return c.deny("epoch %d began by force, and %s said so at %s", e.Epoch, who, at.UTC().Format(time.RFC3339))
		}
		used[e.Word] = true
	}
	return nil
}

// about reports whether a word may be about entry i of a control record's history: it replaced what
// is known, or something later.
func (c *checked) about(t Takeover, was, is *federation.Control, i int) bool {
	e := is.History[i]
	switch {
	case t.Volume != is.Volume, t.Epoch >= e.Epoch, i > 0 && is.History[i-1].Epoch > t.Epoch,
		e.Epoch == is.Epoch && t.Gateway != is.Home.Gateway:
		return false
	case is.Change == was.Change+1:
		return t.Epoch == was.Epoch && t.Change == was.Change
	}
	return t.Epoch >= was.Epoch && t.Change >= was.Change && t.Change < is.Change
}

// outdated reports whether something was said before the record that is known was written, or after
// the one that is to show it. Each clock may be wrong.
func (c *checked) outdated(at time.Time) bool {
	if at.After(c.at.Add(2 * tolerance)) {
		return true
	}
	if c.before == nil {
		return false
	}
	st, _, err := c.creds.Verified(c.before.Signature)
	return err == nil && at.Before(time.Unix(st.At, 0).Add(-2*tolerance))
}

// Forced returns why a control record's words do not count, by what is known; nil: they do, or it
// does not follow that.
func (s *Seal) Forced(key string, value, known []byte, lookup Lookup) error {
	e, err := open(value)
	before, err2 := open(known)
	if s.Since().IsZero() || KindOf(key) != federation.KindControl || errors.Join(err, err2) != nil {
		return nil
	}
	is, err := recordOf[federation.Control](e)
	was, err2 := recordOf[federation.Control](before)
	if errors.Join(err, err2) != nil || is.Change <= was.Change || !is.DescendsFrom(*was) {
		return nil
	}
	st, who, err := s.creds.Verified(e.Signature)
	if err != nil {
		return nil //nolint:nilerr // Check has judged that
	}
	c := &checked{Seal: s, key: key, value: e, who: who, at: time.Unix(st.At, 0), before: &before, look: lookup}
	if who.Part == pki.PartAdministrator { // he decided
		return nil
	}
	v, ve := look[federation.Volume](lookup, federation.KindVolume, is.Volume)
	if v == nil {
		v = new(federation.Volume)
	}
	return c.words(v, ve, was, is)
}

// ownedBy reports whether an organization owned a volume at a time.
func (c *checked) ownedBy(v envelope, organization string, at time.Time) bool {
	return slices.ContainsFunc(v.Deeds, func(d deed) bool {
		st, _, err := c.creds.Verified(d.Signature)
		return err == nil && d.From == organization && !at.After(time.Unix(st.At, 0).Add(2*tolerance))
	})
}
