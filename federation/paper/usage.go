// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Room is how much of an agreement one of the guest's gateways may fill: room that the guest's
// manager set aside for it (escrow). Its writer is the guest.
type Room struct {
	ID      string `json:"id"`
	Guest   string `json:"guest"`
	Host    string `json:"host"`
	Gateway string `json:"gateway"`
	// Bytes is how much may be there at a time of what the gateway put there.
	Bytes quantity.Bytes `json:"bytes"`
}

func (r *Room) name() string                  { return RoomName(r.ID, r.Gateway) }
func (r *Room) writer() string                { return r.Guest }
func (r *Room) parties() (guest, host string) { return r.Guest, r.Host }

// RoomName is the name of a room's paper.
func RoomName(id, gateway string) string { return string(FormRoom) + "/" + id + "/" + gateway }

func (r *Room) validate() error {
	of := "room " + r.ID
	if err := first(id(of, r.ID), organization(of, "guest", r.Guest), organization(of, "host", r.Host),
		label(of, "gateway", r.Gateway)); err != nil {
		return err
	}
	if r.Bytes < 0 {
		return bad(of, "bytes", r.Bytes.String(), "use 0 or more")
	}
	return nil
}

// Counters are what was done and kept under an agreement since it began.
type Counters struct {
	Puts    int64 `json:"puts,omitempty"`
	Gets    int64 `json:"gets,omitempty"`
	Deletes int64 `json:"deletes,omitempty"`
	// In and Out are bytes of objects that were put and read.
	In  quantity.Bytes `json:"in,omitempty"`
	Out quantity.Bytes `json:"out,omitempty"`
	// Stored is how much is there, in bytes; ByteHours how much was there how long, in bytes times
	// hours.
	Stored    quantity.Bytes `json:"stored,omitempty"`
	ByteHours float64        `json:"byteHours,omitempty"`
}

// Plus adds counters.
func (c Counters) Plus(o Counters) Counters {
	return Counters{Puts: c.Puts + o.Puts, Gets: c.Gets + o.Gets, Deletes: c.Deletes + o.Deletes, In: c.In + o.In, Out: c.Out + o.Out,
		Stored: c.Stored + o.Stored, ByteHours: c.ByteHours + o.ByteHours}
}

// grown reports whether counters are those of before, later (paper-6).
func (c Counters) grown(before Counters) bool {
	return c.Puts >= before.Puts && c.Gets >= before.Gets && c.Deletes >= before.Deletes && c.In >= before.In && c.Out >= before.Out &&
		c.ByteHours >= before.ByteHours
}

// Usage is what a gateway or operator of the guest, or a store or gateway of the host, counted. It
// writes it once an hour. Of a lent store the guest's gateways count, and the host's store. Of
// other room the guest's operators count, and the host's gateways (Request.Lodged).
type Usage struct {
	ID    string `json:"id"`
	Guest string `json:"guest"`
	Host  string `json:"host"`
	// By is who counted: a gateway, or the site of a store or an operator. Organization is whose
	// that is.
	By           string `json:"by"`
	Organization string `json:"organization"`
	// At is up to when.
	At time.Time `json:"at"`
	// Of are the counters by gateway of the guest: the writer's own only, if it is one. Of other
	// room than a store's it is all by the site where the room is.
	Of map[string]Counters `json:"of,omitempty"`
	// Taken are the gateways whose counters the writer had lost and took from the other side, and
	// when it did last.
	Taken map[string]time.Time `json:"taken,omitempty"`
	// Erased: a store or gateway deleted everything that was there, as the host's answer asked.
	Erased *Deletion `json:"erased,omitempty"`
}

func (u *Usage) name() string                  { return UsageName(u.ID, u.side(), u.By) }
func (u *Usage) writer() string                { return u.Organization }
func (u *Usage) parties() (guest, host string) { return u.Guest, u.Host }

func (u *Usage) side() Party {
	if u.Organization == u.Host {
		return Host
	}
	return Guest
}

// UsageName is the name of a paper with usage, of one side.
func UsageName(id string, side Party, by string) string {
	return string(FormUsage) + "/" + id + "/" + strings.ToLower(string(side)) + "/" + by
}

// mostCounted bounds each count: no agreement is as large.
const mostCounted = 1 << 50

// Check returns why these are no counters of one gateway.
func (c Counters) Check() error {
	for _, n := range []int64{c.Puts, c.Gets, c.Deletes, int64(c.In), int64(c.Out), int64(c.Stored)} {
		if n < 0 || n > mostCounted {
			return deny("a counter is %d", n)
		}
	}
	if !(c.ByteHours >= 0 && c.ByteHours <= mostCounted*mostCounted) { // also what is no number
		return deny("%v byte-hours", c.ByteHours)
	}
	return nil
}

// All are the counters of all gateways together.
func (u *Usage) All() (sum Counters) {
	for _, c := range u.Of {
		sum = sum.Plus(c)
	}
	return sum
}

// mostGateways bounds how many gateways of a guest are counted.
const mostGateways = 256

func (u *Usage) validate() error {
	of := "usage " + u.ID
	if err := first(id(of, u.ID), organization(of, "guest", u.Guest), organization(of, "host", u.Host), label(of, "by", u.By)); err != nil {
		return err
	}
	switch {
	case u.Organization != u.Guest && u.Organization != u.Host:
		return bad(of, "organization", fmt.Sprintf("%q", u.Organization), "guest and host count")
	case u.At.IsZero():
		return bad(of, "at", "missing", "say up to when was counted")
	case len(u.Of) > mostGateways:
		return bad(of, "of", fmt.Sprintf("%d gateways", len(u.Of)), fmt.Sprintf("count %d at most", mostGateways))
	case u.Erased != nil && u.Organization != u.Host:
		return bad(of, "erased", "said by the guest", "the host erases")
	}
	for g, c := range u.Of {
		if err := label(of, "of", g); err != nil {
			return err
		}
		if err := c.Check(); err != nil {
			return bad(of, "of."+g, err.Error(), "counters begin with 0")
		}
	}
	for g := range u.Taken {
		if !has(u.Of, g) {
			return bad(of, "taken", fmt.Sprintf("%q", g), "name gateways that are counted")
		}
	}
	if u.Erased != nil {
		return said(of, "erased", &u.Erased.Moment)
	}
	return nil
}

func has[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

// Much reports whether what is stored of an agreement changed so much since it was said that it is
// said at once: by a 64th of the amount, by a quarter of what was said, or to or from nothing.
func Much(amount, said, is quantity.Bytes) bool {
	by := max(said-is, is-said)
	return by > min(amount/64, said/4)
}

// How soon it is said that another amount is taken of room that is no store's, and how often what
// is taken is said anew.
const (
	SaidSoon  = 10 * time.Second
	SaidAgain = time.Hour
)

// Lodged is what somebody says who counts room of this agreement that is no store's: so much of it
// is taken from now on. before is what he said before, nil for nothing. It goes on from there, so
// it is an account that outlives him. wait is how long it is until it is to be said; 0: now. nil:
// there is nothing to say.
func (r *Request) Lodged(by, organization string, before *Usage, stored quantity.Bytes, now time.Time) (_ *Usage, wait time.Duration) {
	u := &Usage{ID: r.ID, Guest: r.Guest, Host: r.Host, By: by, Organization: organization, At: now.UTC().Truncate(time.Second)}
	stored = min(stored, r.Amount)
	if before == nil {
		u.Of = map[string]Counters{r.Site: {Stored: stored}}
		if stored == 0 {
			return nil, 0
		}
		return u, 0
	}
	c := before.Of[r.Site]
	since := SaidAgain
	if c.Stored != stored {
		since = SaidSoon
	} else if stored == 0 {
		return nil, 0
	}
	if u.At.After(before.At) {
		c.ByteHours += float64(c.Stored) * u.At.Sub(before.At).Hours()
	} else {
		u.At = before.At // a clock went back
	}
	c.Stored = stored
	u.Of = map[string]Counters{r.Site: c}
	return u, max(since-now.Sub(before.At), 0)
}
