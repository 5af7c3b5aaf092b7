// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// recordVersion is the format of client records that is written. It is also the
// newest that is understood.
const recordVersion = 1

// record is the durable form of a confirmed client. Byte slices are base64.
type record struct {
	Version   int    `json:"version"`
	ID        uint64 `json:"id"`
	Boot      uint64 `json:"boot"`   // of the server, when the client was confirmed
	Serial    uint64 `json:"serial"` // order of confirmation within a boot
	Owner     []byte `json:"owner"`
	Verifier  []byte `json:"verifier"`
	Principal string `json:"principal"`
	Address   string `json:"address"`
	// Certificate is the one that the client showed; "": none. Older records do not have it: such a
	// client may come back with one only once its lease is over, or with its verifier.
	Certificate string          `json:"certificate,omitempty"`
	Sequence    uint32          `json:"sequence"`
	HasState    bool            `json:"hasState"`
	Lease       time.Duration   `json:"lease"` // that the client was told; 0 in older records
	Complete    bool            `json:"reclaimComplete"`
	Sessions    []sessionRecord `json:"sessions"`
	Last        []byte          `json:"lastSession"` // the newest session
}

type sessionRecord struct {
	ID    []byte           `json:"id"`
	Made  uint32           `json:"made"` // Session.made; 0 in older records
	Flags uint32           `json:"flags"`
	Fore  xdr.ChannelAttrs `json:"fore"`
	Back  xdr.ChannelAttrs `json:"back"`
}

func recordKey(client uint64) string { return fmt.Sprintf("client-%016x", client) }

// record returns the durable form of c; t.mu is held.
func (c *Client) record() record { return c.recordWithout(nil) }

// recordWithout returns the record without the session ended; t.mu is held.
func (c *Client) recordWithout(ended *Session) record {
	r := record{
		Version: recordVersion, ID: c.ID, Boot: c.boot, Serial: c.serial,
		Owner: []byte(c.owner), Verifier: c.verifier[:], Principal: c.principal,
		Address: c.Address, Certificate: c.certificate, Sequence: c.createSeq, HasState: c.hasState, Complete: c.done(), Lease: c.lease,
		Last: c.lastCreated.Session[:],
	}
	for _, s := range c.sessions {
		if s == ended {
			continue
		}
		r.Sessions = append(r.Sessions, sessionRecord{append([]byte(nil), s.ID[:]...), s.made, s.Flags, s.Fore, s.Back})
	}
	return r
}

// save makes r durable; admin is held and mu is not.
func (t *Table) save(r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save record of client %x: %w", r.ID, err)
	}
	return t.cfg.Store.Save(recordKey(r.ID), value)
}

// untold is the lease of clients whose records do not say what they were told: the default.
const untold = time.Minute

// load reads all records into the table. It begins the grace period if a client had
// state (state-4).
func (t *Table) load() error {
	var records []record
	err := t.cfg.Store.Load(func(key string, value []byte) error {
		var r record
		if err := json.Unmarshal(value, &r); err != nil {
			return fmt.Errorf("load client record %s: it does not parse (%w): "+
				"remove it; that client must then be remounted if it holds locks", key, err)
		}
		if r.Version > recordVersion {
			return fmt.Errorf("load client record %s: it has format version %d, this program knows up to %d: upgrade this program",
				key, r.Version, recordVersion)
		}
		if len(r.Verifier) != 8 {
			return fmt.Errorf("load client record %s: verifier has %d bytes instead of 8: remove the record", key, len(r.Verifier))
		}
		records = append(records, r)
		return nil
	})
	if err != nil {
		return err
	}
	now := t.cfg.Now()
	for _, r := range records {
		if old := t.owners[ownerKey{r.Address, string(r.Owner)}]; old != nil && old.confirmed != nil {
			prev := old.confirmed
			// The server crashed after it saved a client's new record and before it
			// deleted the old one.
			if prev.boot > r.Boot || prev.boot == r.Boot && prev.serial > r.Serial {
				if err := t.cfg.Store.Delete(recordKey(r.ID)); err != nil {
					return err
				}
				continue
			}
			if err := t.cfg.Store.Delete(recordKey(prev.ID)); err != nil {
				return err
			}
			t.unlink(prev)
		}
		t.restore(r)
	}
	for _, c := range t.clients {
		c.renewed = now
		if c.hasState {
			c.restarted, c.mayReclaim, c.awaited, c.complete = true, true, true, false
			t.grace.waiting++
			t.grace.until = later(t.grace.until, now.Add(c.lease))
		}
		c.mustReclaim = !c.complete
	}
	if t.grace.waiting > 0 {
		t.grace.active = true
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (t *Table) restore(r record) {
	c := &Client{
		ID: r.ID, boot: r.Boot, serial: r.Serial, owner: string(r.Owner), principal: r.Principal,
		certificate: r.Certificate, Address: r.Address, from: r.Address, createSeq: r.Sequence, hasState: r.HasState, complete: r.Complete,
		confirmed: true, loaded: true, sessions: map[xdr.SessionID]*Session{}, lease: max(t.cfg.Lease, cmp.Or(r.Lease, untold)),
	}
	copy(c.verifier[:], r.Verifier)
	t.add(c)
	for _, sr := range r.Sessions {
		s := newSession(c, sr.Made, sr.Flags, sr.Fore, sr.Back)
		copy(s.ID[:], sr.ID)
		s.used, s.idle = t.cfg.Now(), true
		for i := range s.slots {
			s.slots[i].phase = slotUnknown
		}
		t.keepSession(s)
		if string(sr.ID) == string(r.Last) {
			c.lastCreated = Created{s.ID, r.Sequence - 1, s.Flags, s.Fore, s.Back}
		}
	}
	t.owners[c.key()] = &ownerRecord{confirmed: c}
}
