// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/report"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc/codes"

	"github.com/weir-storage/weir/cmd/weir/internal/access"
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/federation"
)

// Stories are views of a federation and what the commands make of them.
//
// Lines of "view", which makes a new view (text after " -- " is a message):
//
//	volume NAME sites=A,B [want=N]               its UUID is uuid-NAME; N > 1: acknowledge Sites
//	site NAME ORGANIZATION
//	gateway NAME SITE [alive] [incarnation=I]    I is by default i-NAME
//	control VOLUME EPOCH HOME MEMBER,MEMBER      incarnations i-NAME
//	observed VOLUME GATEWAY epoch=E commit=S:O at=SECONDS replicas=G:STATE:SECONDS:BYTES,...
//	answer GATEWAY VOLUME [role=R epoch=E commit=S:O end=S:O serving stalled
//	       replicas=... salvage=...] [-- problem]
//	fails GATEWAY CODE -- message                gateways answer with no volume if nothing is said
//
// "status" prints the table, "json" JSON, "failover [to=X] [accept]" the plan.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var v view
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			switch d.Cmd {
			case "view":
				v = newView(t, d.Input)
				return "ok\n"
			case "status":
				if err := writeReport(&b, merge(v), d.HasArg("gateways")); err != nil {
					t.Fatal(err)
				}
			case "json":
				if err := cli.WriteJSON(&b, merge(v)); err != nil {
					t.Fatal(err)
				}
			case "failover":
				to := ""
				d.MaybeScanArgs(t, "to", &to)
				p, err := planFailover(v, to, d.HasArg("accept"))
				switch {
				case err != nil:
					return err.Error() + "\n"
				case p.done != "":
					return p.done + "\n"
				}
				return fmt.Sprintf("%s\nask %s for %s at %s, accept loss %v\n", p.intent(), p.gateway.Name, p.target, p.targetSite,
					p.acceptLoss)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return b.String()
		})
	})
}

// words are the words of a line, its key=value pairs, and its message.
type words struct {
	t     *testing.T
	plain []string
	pairs map[string]string
	text  string
}

func newWords(t *testing.T, line string) words {
	line, text, _ := strings.Cut(line, " -- ")
	w := words{t: t, pairs: map[string]string{}, text: text}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.pairs[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return w
}

func (w words) has(word string) bool { return slices.Contains(w.plain, word) }

func (w words) number(s string) uint64 {
	w.t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w words) position(key string) federation.Position {
	seq, off, _ := strings.Cut(w.pairs[key], ":")
	return federation.Position{Seq: w.number(seq), Off: w.number(off)}
}

func (w words) list(key string) []string {
	if w.pairs[key] == "" {
		return nil
	}
	return strings.Split(w.pairs[key], ",")
}

func (w words) replicas(site map[string]string) []federation.ObservedReplica {
	var out []federation.ObservedReplica
	for _, r := range w.list("replicas") {
		f := strings.Split(r, ":")
		if f[2] == "unheard" {
			out = append(out, federation.ObservedReplica{Gateway: f[0], Site: site[f[0]], State: federation.ReplicaState(f[1]),
				Unheard: true})
			continue
		}
		s, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, federation.ObservedReplica{Gateway: f[0], Site: site[f[0]], State: federation.ReplicaState(f[1]), LagSeconds: s,
			LagBytes: int64(w.number(f[3]))})
	}
	return out
}

func newView(t *testing.T, input string) view {
	t.Helper()
	v := view{federation: "demo", now: clitest.Time.Add(time.Minute), controls: map[string]federation.Control{},
		observed: map[string][]federation.Observed{}, answers: map[string]answer{}}
	site := map[string]string{}
	member := func(g string) federation.Member {
		return federation.Member{Gateway: g, Site: site[g], Incarnation: "i-" + g}
	}
	for line := range strings.Lines(input) {
		w := newWords(t, strings.TrimSpace(line))
		switch w.plain[0] {
		case "volume":
			vol := federation.Volume{UUID: "uuid-" + w.plain[1], Name: w.plain[1], Sites: w.list("sites")}
			if n := w.number(w.pairs["want"]); n > 1 {
				vol.Spec.Durability = federation.Durability{Acknowledge: federation.AcknowledgeSites, Sites: int(n)}
			}
			v.volumes = append(v.volumes, vol)
		case "site":
			v.sites = append(v.sites,
				federation.SiteStatus{Site: federation.Site{Name: w.plain[1], Organization: w.plain[2]}, Alive: map[string]bool{}})
		case "gateway":
			name := w.plain[1]
			i := slices.IndexFunc(v.sites, func(s federation.SiteStatus) bool { return s.Site.Name == w.plain[2] })
			inc := "i-" + name
			if w.pairs["incarnation"] != "" {
				inc = w.pairs["incarnation"]
			}
			site[name] = w.plain[2]
			v.sites[i].Site.Gateways = append(v.sites[i].Site.Gateways,
				federation.Gateway{Name: name, Addr: name + ":7400", NFSAddr: name + ":2049", Incarnation: inc})
			if w.has("alive") {
				v.sites[i].Alive[name] = true
			} else {
				v.answers[name] = answer{err: &access.Refusal{Code: codes.Unavailable, Text: "gateway " + name + " does not answer"}}
			}
		case "control":
			c := federation.Control{Volume: "uuid-" + w.plain[1], Epoch: w.number(w.plain[2]), Home: member(w.plain[3])}
			for _, m := range strings.Split(w.plain[4], ",") {
				c.Members = append(c.Members, member(m))
			}
			v.controls[c.Volume] = c
		case "observed":
			id := "uuid-" + w.plain[1]
			v.observed[id] = append(v.observed[id],
				federation.Observed{Volume: id, Gateway: w.plain[2], Epoch: w.number(w.pairs["epoch"]), Home: w.plain[2],
					Commit: w.position("commit"), Replicas: w.replicas(site), Message: w.text,
					At: clitest.Time.Add(time.Duration(w.number(w.pairs["at"])) * time.Second)})
		case "answer":
			g := w.plain[1]
			a := v.answers[g]
			a.err = nil
			a.volumes = append(a.volumes, report.VolumeStatus{Name: w.plain[2], UUID: "uuid-" + w.plain[2], Gateway: g,
				Role: w.pairs["role"], Epoch: w.number(w.pairs["epoch"]),
				Commit: w.position("commit"), End: w.position("end"), Serving: w.has("serving"), Stalled: w.has("stalled"),
				Replicas: w.replicas(site), Salvage: w.list("salvage"), Problem: w.text, Doubt: w.has("doubt")})
			v.answers[g] = a
		case "fails":
			code := codes.Unavailable
			if w.plain[2] == "PermissionDenied" {
				code = codes.PermissionDenied
			}
			v.answers[w.plain[1]] = answer{err: &access.Refusal{Code: code, Text: w.text}}
		default:
			t.Fatalf("line %q", line)
		}
	}
	return v
}
