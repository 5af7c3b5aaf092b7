// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// formatVersion is the newest record format that this program reads, and the one it writes.
const formatVersion = 1

type envelope struct {
	Version int             `json:"version"`
	Record  json.RawMessage `json:"record"`
}

// Encode is a record's value in the registry.
func Encode(record any) ([]byte, error) {
	p, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{Version: formatVersion, Record: p})
}

// Decode reads a value into record. The kind and name are for the message; errors wrap ErrVersion
// for a newer format and ErrInvalid for a value that does not parse.
func Decode(kind, name string, value []byte, record any) error {
	var e envelope
	if err := json.Unmarshal(value, &e); err != nil || e.Version < 1 {
		return invalid("read", kind, name, fmt.Sprintf("the value is no record (%v): restore it from the volume's log or store, or "+
			"remove the key", err))
	}
	if e.Version > formatVersion {
		return &Error{Op: "read", Kind: kind, Name: name, Err: ErrVersion, Detail: fmt.Sprintf(
			"it has format version %d, this program knows up to %d: upgrade this program", e.Version, formatVersion)}
	}
	d := json.NewDecoder(bytes.NewReader(e.Record))
	if _, shown := record.(*Observed); !shown { // it is only shown, by programs of other versions too
		d.DisallowUnknownFields()
	}
	if err := d.Decode(record); err != nil {
		return invalid("read", kind, name, fmt.Sprintf("%v: the record was changed by hand or by another program; restore it", err))
	}
	return nil
}
