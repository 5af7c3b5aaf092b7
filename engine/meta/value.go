// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// Dirent is a directory entry.
type Dirent struct {
	Name   string
	Cookie uint64
	Handle volume.Handle
	Type   volume.Type // set in entries by name only
}

// EncodeName returns the key and the value of d by name.
func (d *Dirent) EncodeName(dir uint64) (key, value []byte) {
	key = NameKey(dir, d.Name)
	b := begin(25)
	b = binary.BigEndian.AppendUint64(b, d.Handle.Ino)
	b = binary.BigEndian.AppendUint64(b, d.Handle.Gen)
	b = binary.BigEndian.AppendUint64(b, d.Cookie)
	return key, seal(key, append(b, uint8(d.Type)))
}

// DecodeName parses the value of the NameKey of a name.
func DecodeName(key, value []byte, name string) (Dirent, error) {
	r, err := open(key, value)
	if err != nil {
		return Dirent{}, err
	}
	d := Dirent{Name: name, Handle: volume.Handle{Ino: r.u64(), Gen: r.u64()}, Cookie: r.u64(), Type: volume.Type(r.u8())}
	return d, r.done()
}

// EncodeCookie returns the key and the value of d by cookie.
func (d *Dirent) EncodeCookie(dir uint64) (key, value []byte) {
	key = CookieKey(dir, d.Cookie)
	b := begin(16 + len(d.Name))
	b = binary.BigEndian.AppendUint64(b, d.Handle.Ino)
	b = binary.BigEndian.AppendUint64(b, d.Handle.Gen)
	return key, seal(key, append(b, d.Name...))
}

// DecodeCookie parses the value of a CookieKey.
func DecodeCookie(key, value []byte) (Dirent, error) {
	r, err := open(key, value)
	if err != nil {
		return Dirent{}, err
	}
	d := Dirent{Cookie: second(key), Handle: volume.Handle{Ino: r.u64(), Gen: r.u64()}, Name: string(r.rest())}
	return d, r.done()
}

// Accounting is what a volume uses.
type Accounting struct {
	Bytes, Inodes uint64
	// Held is how many bytes only snapshots hold (meta-12), if that is Counted.
	Held    uint64
	Counted bool
}

// Encode returns the key and the value of a.
func (a Accounting) Encode() (key, value []byte) {
	key = AccountingKey()
	b := binary.BigEndian.AppendUint64(begin(24), a.Bytes)
	b = binary.BigEndian.AppendUint64(b, a.Inodes)
	if a.Counted {
		b = binary.BigEndian.AppendUint64(b, a.Held)
	}
	return key, seal(key, b)
}

// DecodeAccounting parses the value of the AccountingKey.
func DecodeAccounting(key, value []byte) (Accounting, error) {
	r, err := open(key, value)
	if err != nil {
		return Accounting{}, err
	}
	a := Accounting{Bytes: r.u64(), Inodes: r.u64()}
	if a.Counted = len(r.left) > 0; a.Counted {
		a.Held = r.u64()
	}
	return a, r.done()
}

// State is how far records were applied, and the greatest epoch among them.
type State struct {
	Position segment.Position
	Epoch    uint64
}

// Encode returns the key and the value of s.
func (s State) Encode() (key, value []byte) {
	key = AppliedKey()
	b := binary.BigEndian.AppendUint64(begin(24), s.Position.Seq)
	b = binary.BigEndian.AppendUint64(b, s.Position.Off)
	return key, seal(key, binary.BigEndian.AppendUint64(b, s.Epoch))
}

// DecodeState parses the value of the AppliedKey.
func DecodeState(key, value []byte) (State, error) {
	r, err := open(key, value)
	if err != nil {
		return State{}, err
	}
	s := State{Position: segment.Position{Seq: r.u64(), Off: r.u64()}, Epoch: r.u64()}
	return s, r.done()
}

// EncodeOrphan returns the key and the value of the orphan h.
func EncodeOrphan(h volume.Handle) (key, value []byte) {
	key = OrphanKey(h.Ino)
	return key, seal(key, binary.BigEndian.AppendUint64(begin(8), h.Gen))
}

// DecodeOrphan parses the value of an OrphanKey.
func DecodeOrphan(key, value []byte) (volume.Handle, error) {
	r, err := open(key, value)
	if err != nil {
		return volume.Handle{}, err
	}
	h := volume.Handle{Ino: binary.BigEndian.Uint64(key[1:9]), Gen: r.u64()}
	return h, r.done()
}

// EncodeBytes returns the value of a key of Targets or Xattrs.
func EncodeBytes(key, content []byte) []byte {
	return seal(key, append(begin(len(content)), content...))
}

// DecodeBytes parses what EncodeBytes made. The result shares value's memory.
func DecodeBytes(key, value []byte) ([]byte, error) {
	r, err := open(key, value)
	if err != nil {
		return nil, err
	}
	return r.rest(), nil
}

// EncodeSeq returns the value of a SlotKey.
func EncodeSeq(key []byte, seq uint32) []byte {
	return seal(key, binary.BigEndian.AppendUint32(begin(4), seq))
}

// DecodeSeq parses the value of a SlotKey.
func DecodeSeq(key, value []byte) (uint32, error) {
	r, err := open(key, value)
	if err != nil {
		return 0, err
	}
	seq := r.u32()
	return seq, r.done()
}

// EncodeResult returns the value of a ResultKey.
func EncodeResult(key []byte, seq uint32, result []byte) []byte {
	b := binary.BigEndian.AppendUint32(begin(4+len(result)), seq)
	return seal(key, append(b, result...))
}

// DecodeResult parses the value of a ResultKey. The result shares value's memory.
func DecodeResult(key, value []byte) (seq uint32, result []byte, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, nil, err
	}
	seq = r.u32()
	result = r.rest()
	return seq, result, r.done()
}

// Wasted is an entry of a directory that is in the trash. Its cookie there is the number of the
// record that put it there, which is its key's.
type Wasted struct {
	Dir  uint64 // the directory
	Time time.Time
}

// Encode returns the key and the value of what the record with a number put into the trash.
func (w Wasted) Encode(number uint64) (key, value []byte) {
	key = WasteKey(number)
	return key, seal(key, appendTime(binary.BigEndian.AppendUint64(begin(20), w.Dir), w.Time))
}

// DecodeWasted parses the value of a WasteKey.
func DecodeWasted(key, value []byte) (number uint64, w Wasted, err error) {
	r, err := open(key, value)
	if err != nil {
		return 0, Wasted{}, err
	}
	w = Wasted{Dir: r.u64(), Time: r.time()}
	return first(key), w, r.done()
}
