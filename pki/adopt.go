// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// Adopt takes a charter that somebody handed over: from then on it says who vouches for whom, and
// connections that it does not allow are closed, without waiting for their ends. Then it is kept
// (KeepCharter); it counts also if that fails.
// ErrCharter: it is not taken, since no founding authority that is trusted here signed it, or it is
// older than the one in force. That one again is no error. It reports whether the charter is new.
// One that is not taken is looked at again when the file of the authority changes: the authority
// that signed it may come later.
func (c *Credentials) Adopt(signed string) (news bool, err error) {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	next, err := c.newer(signed)
	if err != nil {
		c.refused = signed
		return false, err
	}
	c.refused = ""
	if next != nil {
		c.charter.Store(next)
		c.cut()
	}
	if c.save != nil && (next != nil || c.unsaved) {
		err := c.save(c.charter.Load().signed)
		if c.unsaved = err != nil; err != nil {
			return next != nil, fmt.Errorf("keep charter: %w: it is in force until this process ends", err)
		}
	}
	return next != nil, nil
}

// again looks once more at a charter that was not taken.
func (c *Credentials) again() {
	c.adopting.Lock()
	signed := c.refused
	c.adopting.Unlock()
	if signed == "" {
		return
	}
	news, err := c.Adopt(signed)
	if is, ok := c.Charter(); ok && news {
		c.files.Log.Info("a charter that was not taken before is in force", "serial", is.Serial)
	}
	if err != nil {
		c.files.Log.Error("the charter that was not taken before is not taken or not kept", "error", err)
	}
}

// newer reads a charter and compares it with the one in force; nil: it is the same.
func (c *Credentials) newer(signed string) (*charter, error) {
	is := c.charter.Load()
	if is != nil && is.signed == signed {
		return nil, nil
	}
	next, err := c.current().roots.readCharter(c.self.Federation, signed)
	switch {
	case err != nil:
		return nil, err
	case is != nil && next.text == is.text:
		return nil, nil // signed twice, or by somebody who can make one signature of another
	case is != nil && next.Serial < is.Serial:
		return nil, fmt.Errorf("adopt charter: %w: its serial is %d, and the one in force has %d: the registry went back, or somebody "+
			"put an old one there", ErrCharter, next.Serial, is.Serial)
	case is != nil && next.Serial == is.Serial:
		return nil, fmt.Errorf("adopt charter: %w: two charters have serial %d: the founding authority signed both; sign one with %d",
			ErrCharter, is.Serial, is.Serial+1)
	}
	return next, nil
}

// Charter returns the charter in force, false if there is none.
func (c *Credentials) Charter() (Charter, bool) {
	if is := c.charter.Load(); is != nil {
		return is.Charter, true
	}
	return Charter{}, false
}

// CheckCharter reads a charter as Adopt does, and takes nothing.
func (c *Credentials) CheckCharter(signed string) (Charter, error) {
	next, err := c.current().roots.readCharter(c.self.Federation, signed)
	if err != nil {
		return Charter{}, err
	}
	return next.Charter, nil
}

// Expelled reports whether the charter in force does not have an organization, or has it as
// expelled.
func (c *Credentials) Expelled(organization string) bool {
	is := c.charter.Load()
	return is != nil && is.expelled(organization, PartUnknown) != nil
}

// Conn is a connection that ends when its peer is not accepted any more.
type Conn struct {
	net.Conn
	of     *Credentials
	state  tls.ConnectionState
	verify func(tls.ConnectionState) error
}

// Keep watches over a connection after its handshake, that of a server's or a client's side. verify
// is that of the configuration with which it was made: it is asked again when a charter is taken,
// and when the files of the authority change.
func (c *Credentials) Keep(conn net.Conn, s tls.ConnectionState, verify func(tls.ConnectionState) error) (*Conn, error) {
	k := &Conn{Conn: conn, of: c, state: s, verify: verify}
	c.mu.Lock()
	if c.open == nil {
		c.open = map[*Conn]struct{}{}
	}
	c.open[k] = struct{}{}
	c.mu.Unlock()
	if err := verify(s); err != nil { // a charter may have come between the handshake and here
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Close ends the connection.
func (k *Conn) Close() error {
	k.of.mu.Lock()
	delete(k.of.open, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// cut closes connections whose peers are not accepted any more.
func (c *Credentials) cut() {
	c.mu.Lock()
	var all []*Conn
	for k := range c.open {
		all = append(all, k)
	}
	c.mu.Unlock()
	for _, k := range all {
		if k.verify(k.state) != nil {
			go func() { _ = k.Close() }() // within 5 s, after which crypto/tls waits for no peer
		}
	}
}

// KeepCharter takes the charter that an earlier process kept, "" if there is none, and has save
// keep those that come, durably. One that cannot be read is an error: without it, this process
// would accept who was expelled.
func (c *Credentials) KeepCharter(kept string, save func(signed string) error) error {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	c.save = save
	if kept == "" {
		return nil
	}
	next, err := c.newer(kept)
	if err != nil {
		return fmt.Errorf("%w: put the founding authority that signed it into the file of authorities; if that was replaced, have a new "+
			"charter signed, remove the file, and start again", err)
	}
	if next != nil {
		c.charter.Store(next)
		c.cut()
	}
	return nil
}
