// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/relay"
	"github.com/weir-storage/weir/federation/gatekeeper/shown"
	"github.com/weir-storage/weir/federation/internal/about"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

type kvServer struct {
	pb.UnimplementedKVServer
	g *Gatekeeper
}

// span is a key of etcd, or all that begin with it.
type span struct {
	key      string // relative
	prefixed bool
}

// span reads a range of etcd: one key below the federation's prefix, or all that begin with one.
func (g *Gatekeeper) span(key, end []byte) (span, bool) {
	rest, ok := strings.CutPrefix(string(key), g.prefix)
	switch {
	case !ok || len(end) == 0 && rest == "":
		return span{}, false
	case len(end) == 0:
		return span{rest, false}, true
	}
	return span{rest, true}, bytes.Equal(end, prefixEnd(key))
}

// prefixEnd is the first key after all that begin with one. Keys end before 0xff, so it is never
// empty.
func prefixEnd(key []byte) []byte {
	end := slices.Clone(key)
	end[len(end)-1]++
	return end
}

// get is an operation that reads a span; it has no values with keysOnly.
func (g *Gatekeeper) get(s span, serializable, keysOnly bool) *pb.RequestOp {
	r := &pb.RangeRequest{Key: []byte(g.prefix + s.key), Serializable: serializable, KeysOnly: keysOnly}
	if s.prefixed {
		r.RangeEnd = prefixEnd(r.Key)
		r.Limit = 1
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func malformed(format string) error {
	return status.Error(codes.InvalidArgument, "the gatekeeper: "+format)
}

// Range answers a read.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if _, ok := s.g.span(r.GetKey(), r.GetRangeEnd()); !ok {
		return nil, s.g.refuse(who(ctx), "Range", "foreign", "key %q is not of this federation", r.GetKey())
	}
	out, err := s.g.kv.Range(ctx, r)
	if err != nil {
		return nil, err
	}
	return out, s.g.conceal(ctx, out.GetHeader().GetRevision(), []bool{len(r.GetRangeEnd()) == 0}, out)
}

// conceal takes what the asker is not shown out of answers (gatekeeper-12).
func (g *Gatekeeper) conceal(ctx context.Context, at int64, one []bool, answers ...*pb.RangeResponse) error {
	return g.shown.Read(ctx, g.viewer(ctx), at, one, answers...)
}

func (g *Gatekeeper) viewer(ctx context.Context) shown.Viewer {
	id := who(ctx)
	return shown.Viewer{Organization: id.Organization, Gateway: id.Part == pki.PartGateway, All: id.Part == pki.PartAdministrator}
}

// Put writes a heartbeat: the only key that is bound to a lease.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	id := who(ctx)
	at, ok := s.g.span(r.GetKey(), nil)
	if !ok || kindOf(at.key) != string(federation.KindAlive) || path(at.key, 1) == nil || r.GetLease() == 0 || r.GetIgnoreLease() ||
		r.GetIgnoreValue() {
		return nil, s.g.refuse(id, "Put", kindOf(at.key), "only a heartbeat is written without a transaction, with its lease")
	}
	w := write{key: at.key, value: r.GetValue()}
	for _, serializable := range []bool{true, false} {
		q, err := s.g.facts(ctx, []write{w}, serializable)
		if err != nil {
			return nil, err
		}
		err = q.heartbeat(w)
		switch d := (*denial)(nil); {
		case err == nil:
			if err := s.g.owns(ctx, "Put", r.GetLease()); err != nil {
				return nil, err
			}
			return s.g.kv.Put(ctx, r)
		case !serializable && errors.As(err, &d):
			return nil, s.g.refuse(id, "Put", kindOf(d.key), "%v", d)
		case !serializable:
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
	}
	return nil, nil
}

// heartbeat is gatekeeper-5 for heartbeats.
func (q *request) heartbeat(w write) error {
	name := path(w.key, 1)[0]
	ok, err := q.gateway(name)
	if err != nil {
		return err
	}
	a, err := after[federation.Alive](q, w)
	if err == nil && (!ok || a.Gateway != name || a.Site != q.who.Site) {
		err = q.deny(w.key, "it is written by gateway %s, registered at its site, and nobody else", name)
	}
	return err
}

// Txn answers a transaction: a read, or a change.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	id := who(ctx)
	if len(r.GetCompare()) > maxOps || len(r.GetSuccess()) > maxOps {
		return nil, malformed("a transaction has at most 128 conditions and 128 operations")
	}
	conditions, err := s.g.conditions(id, r)
	if err != nil {
		return nil, err
	}
	writes, err := s.g.writes(id, r)
	if err != nil {
		return nil, err
	}
	if len(writes) == 0 {
		return s.read(ctx, r)
	}
	return s.change(ctx, r, conditions, writes)
}

// read answers a transaction that changes nothing.
func (s *kvServer) read(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	out, err := s.g.kv.Txn(ctx, r)
	if err != nil || !out.GetSucceeded() {
		return out, err
	}
	var one []bool
	var answers []*pb.RangeResponse
	for i, op := range r.GetSuccess() {
		one = append(one, len(op.GetRequestRange().GetRangeEnd()) == 0)
		answers = append(answers, out.GetResponses()[i].GetResponseRange())
	}
	return out, s.g.conceal(ctx, out.GetHeader().GetRevision(), one, answers...)
}

// conditions reads the conditions of a transaction: that of keys, or of all that begin with one,
// the revision is so.
func (g *Gatekeeper) conditions(id pki.Identity, r *pb.TxnRequest) (out []span, err error) {
	for _, c := range r.GetCompare() {
		at, ok := g.span(c.GetKey(), c.GetRangeEnd())
		if !ok {
			return nil, g.refuse(id, "Txn", "foreign", "key %q is not of this federation", c.GetKey())
		}
		if c.GetResult() != pb.Compare_EQUAL || c.GetTarget() != pb.Compare_MOD ||
			at.prefixed && (c.GetModRevision() != 0 || at != notices) {
			return nil, malformed("a condition is that a key has a revision, or that there is none")
		}
		out = append(out, at)
	}
	return out, nil
}

// writes reads what a transaction changes; none: it only reads.
func (g *Gatekeeper) writes(id pki.Identity, r *pb.TxnRequest) (out []write, err error) {
	if len(r.GetFailure()) > 0 {
		return nil, malformed("what is done when a condition fails is not offered")
	}
	reads := 0
	for _, op := range r.GetSuccess() {
		var key, end []byte
		var w write
		switch {
		case op.GetRequestRange() != nil:
			key, end = op.GetRequestRange().GetKey(), op.GetRequestRange().GetRangeEnd()
			reads++
		case op.GetRequestPut() != nil:
			p := op.GetRequestPut()
			if key, w.value = p.GetKey(), p.GetValue(); p.GetLease() != 0 || p.GetIgnoreLease() || p.GetIgnoreValue() || p.GetPrevKv() {
				return nil, malformed("a transaction puts values, without leases, and is not told what there was")
			}
		case op.GetRequestDeleteRange() != nil:
			d := op.GetRequestDeleteRange()
			d.PrevKv, w.deletes = false, true
			key, end = d.GetKey(), d.GetRangeEnd()
		default:
			return nil, malformed("transactions in transactions are not offered")
		}
		at, ok := g.span(key, end)
		if !ok {
			return nil, g.refuse(id, "Txn", "foreign", "key %q is not of this federation", key)
		}
		if op.GetRequestRange() == nil {
			w.key, w.prefixed = at.key, at.prefixed
			out = append(out, w)
		}
	}
	if reads > 0 && len(out) > 0 {
		return nil, malformed("a transaction reads, or it changes something")
	}
	return out, nil
}

// facts reads what a request is judged by. A serializable read is of this member's memory: it costs
// no round trip, and may be old.
func (g *Gatekeeper) facts(ctx context.Context, writes []write, serializable bool) (*request, error) {
	id := who(ctx)
	q := &request{who: id, now: g.cfg.Now(), writes: writes, facts: map[string]fact{}, credentials: g.cfg.Credentials, seal: g.seal}
	keys := needs(id, writes)
	ops := []*pb.RequestOp{g.get(notices, serializable, true)}
	together := len(keys) < maxOps // one question less
	if together {
		ops = append(ops, g.gets(keys, serializable)...)
	}
	res, err := g.kv.Txn(ctx, &pb.TxnRequest{Success: ops})
	if err != nil {
		return nil, err
	}
	q.header = res.GetHeader()
	if found := res.GetResponses()[0].GetResponseRange().GetKvs(); len(found) > 0 {
		q.refused = true
		if id.Part == pki.PartAdministrator { // then nothing else decides
			q.facts[strings.TrimPrefix(string(found[0].GetKey()), g.prefix)] = fact{revision: found[0].GetModRevision()}
			return q, nil
		}
		if q.halted() {
			return q, nil
		}
	}
	round := 0
	if together {
		q.take(keys, res.GetResponses()[1:])
		keys, round = q.more(), 1
	}
	// What the rules look at may show what else they look at, and that once more.
	for ; len(keys) > 0 && round < 3; keys, round = q.more(), round+1 {
		if err := g.read(ctx, q, keys, serializable); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// notices are what gateways say of a registry that went back.
var notices = span{key: kindNotice + "/", prefixed: true}

// read adds the facts of keys to a request.
func (g *Gatekeeper) read(ctx context.Context, q *request, keys []string, serializable bool) error {
	if len(keys)+len(q.facts) > maxOps {
		return malformed("one request changes too many records: send several")
	}
	res, err := g.kv.Txn(ctx, &pb.TxnRequest{Success: g.gets(keys, serializable)})
	if err != nil {
		return err
	}
	q.header = res.GetHeader()
	q.take(keys, res.GetResponses())
	return nil
}

// gets reads keys.
func (g *Gatekeeper) gets(keys []string, serializable bool) (ops []*pb.RequestOp) {
	for _, k := range keys {
		ops = append(ops, g.get(span{key: k}, serializable, false))
	}
	return ops
}

// take adds what was read of keys.
func (q *request) take(keys []string, read []*pb.ResponseOp) {
	for i, r := range read {
		f := fact{}
		if found := r.GetResponseRange().GetKvs(); len(found) > 0 {
			f = fact{found[0].GetValue(), found[0].GetModRevision()}
		}
		q.facts[keys[i]] = f
	}
}

// halted reports whether a request is about volumes, which nobody but an administrator changes
// while a gateway says that the registry went back (protocol-7).
func (q *request) halted() bool {
	return q.who.Part != pki.PartAdministrator && slices.ContainsFunc(q.writes, func(w write) bool { return about.OfVolumes(w.key) })
}

// errOvertaken: a condition of the asker does not hold. His change is not judged: it may be refused
// for what he could not know.
var errOvertaken = errors.New("a condition does not hold")

// warm checks signatures while facts are read. What it finds is remembered (pki.Credentials), so
// that who judges by them does not wait for it.
func (g *Gatekeeper) warm(ctx context.Context, writes []write) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.safely(ctx, "Txn", func() error { // who judges by it hears of it
			for _, w := range writes {
				if signed.Has(w.value) && signed.Covers(w.key) {
					_, _, _ = g.seal.By(w.key, w.value)
				}
			}
			return nil
		})
	}()
	return done
}

// judged reads facts and judges by them, first by what this member remembers. Besides refusals and
// errors of etcd it returns errOvertaken.
func (g *Gatekeeper) judged(ctx context.Context, asked *pb.TxnRequest, conditions []span, writes []write,
	serializable bool) (*request, error) {
	warm := g.warm(ctx, writes)
	q, err := g.facts(ctx, writes, serializable)
	<-warm
	if err != nil {
		return nil, err
	}
	overtaken := q.refused && q.halted() && slices.Contains(conditions, notices)
	for i, c := range asked.GetCompare() {
		f, known := q.facts[conditions[i].key]
		overtaken = overtaken || known && !conditions[i].prefixed && f.revision != c.GetModRevision()
	}
	switch {
	case overtaken:
	case q.refused && q.halted():
		err = q.deny(q.writes[0].key, "a gateway says that the registry went back, and nothing about volumes changes")
	default:
		err = judge(q)
	}
	switch {
	case (err != nil || overtaken) && serializable:
		return g.judged(ctx, asked, conditions, writes, false)
	case overtaken:
		return q, errOvertaken
	case err == nil:
		return q, nil
	}
	if d := (*denial)(nil); errors.As(err, &d) {
		err = g.refuse(q.who, "Txn", kindOf(d.key), "%v", d)
		for _, w := range q.writes { // what the log has, he is not told
			if !g.shown.Tells(g.viewer(ctx), w.key) {
				err = status.Errorf(codes.PermissionDenied, "%s as %q: %s is not for this organization to write", q.who, q.who.Part, w.key)
			}
		}
		return nil, err
	}
	return nil, status.Error(codes.FailedPrecondition, err.Error())
}

// changeTries is how often a change is judged anew because what it was judged by has changed.
const changeTries = 10

// change judges a change and sends it on, with what it was judged by as conditions.
func (s *kvServer) change(ctx context.Context, r *pb.TxnRequest, conditions []span, writes []write) (*pb.TxnResponse, error) {
	for try := range changeTries {
		q, err := s.g.judged(ctx, r, conditions, writes, try == 0)
		if errors.Is(err, errOvertaken) {
			return &pb.TxnResponse{Header: q.header}, nil
		}
		if err != nil {
			return nil, err
		}
		if try == 0 {
			s.g.audit(q.who, "Txn", writes)
		}
		sent := &pb.TxnRequest{Compare: slices.Clone(r.GetCompare()), Success: r.GetSuccess()}
		for k, f := range q.facts {
			if !slices.Contains(conditions, span{key: k}) {
				sent.Compare = append(sent.Compare, &pb.Compare{Key: []byte(s.g.prefix + k), Result: pb.Compare_EQUAL,
					Target:      pb.Compare_MOD,
					TargetUnion: &pb.Compare_ModRevision{ModRevision: f.revision}})
			}
		}
		if q.halted() && !slices.Contains(conditions, notices) {
			at := []byte(s.g.prefix + notices.key)
			sent.Compare = append(sent.Compare, &pb.Compare{Key: at, RangeEnd: prefixEnd(at), Result: pb.Compare_EQUAL,
				Target:      pb.Compare_MOD,
				TargetUnion: &pb.Compare_ModRevision{}})
		}
		for _, c := range conditions {
			sent.Failure = append(sent.Failure, s.g.get(c, false, true))
		}
		if len(sent.Compare) > maxOps || len(sent.Failure) > maxOps {
			return nil, malformed("one request changes too many records: send several")
		}
		out, err := s.g.kv.Txn(ctx, sent)
		if err != nil || out.GetSucceeded() {
			return out, err
		}
		if !relay.Held(r.GetCompare(), out.GetResponses()) {
			out.Responses = nil
			return out, nil
		}
	}
	return nil, status.Error(codes.Unavailable,
		"the gatekeeper: what decides about this change keeps changing: nothing was changed; try again")
}
