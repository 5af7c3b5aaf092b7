// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

func position(p protocol.Position) *peerpb.Position {
	return &peerpb.Position{Seq: p.Seq, Off: p.Off}
}

func toPosition(p *peerpb.Position) protocol.Position {
	return protocol.Position{Seq: p.GetSeq(), Off: p.GetOff()}
}

func encode(e replica.Envelope) *peerpb.Envelope {
	m := e.Message
	out := &peerpb.Envelope{
		Volume: e.Volume, Kind: uint32(m.Kind), Epoch: m.Epoch, Stamp: int64(m.Stamp), Echo: int64(m.Echo), Grant: int64(m.Grant),
		From:  &peerpb.Member{Gateway: m.From.Gateway, Site: m.From.Site, Incarnation: m.From.Incarnation, Log: m.From.Log},
		Start: position(m.Start), End: position(m.End), Commit: position(m.Commit), Proof: e.Proof, Frames: e.Frames, Forced: m.Forced,
		Current: m.Current, Reads: int64(m.Reads), Blind: m.Blind, Part: m.Part, Whole: m.Whole, Lacks: m.Lacks,
	}
	for _, s := range m.Epochs {
		out.Epochs = append(out.Epochs, &peerpb.EpochStart{Epoch: s.Epoch, Start: position(s.Start), Salt: s.Salt[:]})
	}
	return out
}

func decode(e *peerpb.Envelope) replica.Envelope {
	m := protocol.Message{
		Kind: protocol.Kind(e.GetKind()), Epoch: e.GetEpoch(), Stamp: time.Duration(e.GetStamp()), Echo: time.Duration(e.GetEcho()),
		Grant: time.Duration(e.GetGrant()),
		From: protocol.Member{Gateway: e.GetFrom().GetGateway(), Site: e.GetFrom().GetSite(),
			Incarnation: e.GetFrom().GetIncarnation(), Log: e.GetFrom().GetLog()},
		Start: toPosition(e.GetStart()), End: toPosition(e.GetEnd()), Commit: toPosition(e.GetCommit()), Forced: e.GetForced(),
		Current: e.GetCurrent(), Reads: int(min(max(e.GetReads(), 0), 1<<20)),
		Blind: e.GetBlind(), Part: e.GetPart(), Whole: e.GetWhole(), Lacks: e.GetLacks(),
	}
	for _, s := range e.GetEpochs() {
		start := log.EpochStart{Epoch: s.GetEpoch(), Start: toPosition(s.GetStart())}
		copy(start.Salt[:], s.GetSalt())
		m.Epochs = append(m.Epochs, start)
	}
	return replica.Envelope{Volume: e.GetVolume(), Message: m, Proof: e.GetProof(), Frames: e.GetFrames()}
}
