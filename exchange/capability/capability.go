// SPDX-License-Identifier: Apache-2.0

// Package capability has the keys with which a guest's gateway uses a lent store (ADR 35): a pair
// of S3 keys, of which the access key says what is allowed, and the secret key is a MAC of it that
// only the store can make. The store keeps no list of them, as NASD's drives keep none.
//
//	access key = "WEIR" base64url( version 1 byte, then JSON of Capability )
//	secret key = base64url( HMAC-SHA256( store's key, access key ) )
//
// S3's signatures (AWS Signature Version 4) show that who asks has the secret.
package capability

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Capability is what somebody may do, and until when.
type Capability struct {
	// Store is the site of the store that made it.
	Store string `json:"s"`
	// Agreement is the bucket: the agreement's ID.
	Agreement string `json:"a"`
	// Organization and Gateway are who may use it, on a connection of its own.
	Organization string `json:"o"`
	Gateway      string `json:"g"`
	// Until is in seconds since 1970.
	Until int64 `json:"u"`
}

// Folder is where the gateway may put objects.
func (c Capability) Folder() string { return c.Gateway + "/" }

// Ends is when it ends.
func (c Capability) Ends() time.Time { return time.Unix(c.Until, 0) }

const (
	mark    = "WEIR"
	version = 1
	most    = 512 // bytes of an access key
)

// ErrInvalid is wrapped by errors about access keys that no store of Weir has made.
var ErrInvalid = errors.New("this access key is no capability")

// Access is the access key of a capability.
func (c Capability) Access() (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	out := mark + base64.RawURLEncoding.EncodeToString(append([]byte{version}, text...))
	if len(out) > most {
		return "", fmt.Errorf("a capability of %d bytes, %d are the most: use shorter names", len(out), most)
	}
	return out, nil
}

// Read reads an access key. Whether its secret is known, a signature shows.
func Read(access string) (c Capability, err error) {
	text, ok := strings.CutPrefix(access, mark)
	if !ok || len(access) > most {
		return c, ErrInvalid
	}
	is, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(is) == 0 || is[0] != version {
		return c, ErrInvalid
	}
	if err := json.Unmarshal(is[1:], &c); err != nil {
		return c, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if again, err := c.Access(); err != nil || again != access { // one text for one capability
		return c, ErrInvalid
	}
	return c, nil
}

// KeySize is how long a store's key is, in bytes.
const KeySize = 32

// Key is what a store makes secrets with. Who has it can make any capability of that store.
type Key []byte

// NewKey draws a key.
func NewKey() (Key, error) {
	k := make(Key, KeySize)
	_, err := rand.Read(k)
	return k, err
}

// Secret is the secret key to an access key.
func (k Key) Secret(access string) string {
	m := hmac.New(sha256.New, k)
	_, _ = m.Write([]byte("weir capability\n" + access))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}
