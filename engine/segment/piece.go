// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"strconv"
	"strings"
)

// PieceFolder is what the names of pieces begin with after the volume.
const PieceFolder = "/t/"

// Piece names a part of a segment that may still grow, as a store has it (ADR 60). Whoever has the
// pieces of a segment from its beginning has what of it was committed.
type Piece struct {
	Seq  uint64
	Salt [8]byte // the first bytes of the segment's salt
	From uint64  // its place in the segment
	To   uint64
	// Hash is the BLAKE3 of all that the segment has before To. So it says what comes before the
	// piece, too.
	Hash Hash
}

// Of reports whether it is a piece of a segment with that header, as far as names tell.
func (p Piece) Of(seq uint64, salt [32]byte) bool { return p.Seq == seq && p.Salt == [8]byte(salt[:8]) }

// PieceName returns the object name of a piece.
func PieceName(volume VolumeID, p Piece) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x%s%016x-%x-%08x-%08x-%x", volume[:4], volume[4:6], volume[6:8], volume[8:10], volume[10:],
		PieceFolder, p.Seq, p.Salt, p.From, p.To, p.Hash)
}

// ParsePieceName is the inverse of PieceName. It accepts only names that PieceName makes.
func ParsePieceName(name string) (volume VolumeID, p Piece, err error) {
	bad := fmt.Errorf("parse name of a piece %q: want <volume uuid>%s<16>-<16>-<8>-<8>-<64 hex digits>", name, PieceFolder)
	v, rest, ok := strings.Cut(name, PieceFolder)
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 5 {
		return volume, p, bad
	}
	// A segment's name has a volume, a sequence and a hash of the same form.
	if volume, p.Seq, p.Hash, err = ParseName(v + "/" + parts[0] + "-" + parts[4]); err != nil {
		return volume, p, bad
	}
	salt, err := strconv.ParseUint(parts[1], 16, 64)
	for i := range p.Salt {
		p.Salt[i] = byte(salt >> (56 - 8*i))
	}
	for i, to := range []*uint64{&p.From, &p.To} {
		var nerr error
		if *to, nerr = strconv.ParseUint(parts[2+i], 16, 32); nerr != nil {
			err = nerr
		}
	}
	if err != nil || p.From >= p.To || p.To > MaxOffset || PieceName(volume, p) != name {
		return volume, p, bad
	}
	return volume, p, nil
}
