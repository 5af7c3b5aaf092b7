// SPDX-License-Identifier: Apache-2.0

package topcmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/gateway/nfs"
)

// Report is the output of `weir top -o json`: what happened per second between two looks.
type Report struct {
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"` // between the looks
	// Gateways are those that did not answer, or did not want to, and why.
	Gateways []GatewayProblem `json:"gateways,omitempty"`
	Volumes  []VolumeLine     `json:"volumes"` // the busiest first
	Clients  []ClientLine     `json:"clients"` // the busiest first
}

// GatewayProblem is a gateway of which nothing is known.
type GatewayProblem struct {
	Gateway string `json:"gateway"`
	Problem string `json:"problem"`
}

// Rates are what was done, per second.
type Rates struct {
	Reads    float64 `json:"reads"`
	Writes   float64 `json:"writes"`
	Commits  float64 `json:"commits"`
	Metadata float64 `json:"metadata"`
	Errors   float64 `json:"errors"`
	Read     float64 `json:"read"`    // bytes
	Written  float64 `json:"written"` // bytes
	// Latency is the mean of all operations, in seconds.
	Latency float64 `json:"latency"`

	took float64
}

// VolumeLine is a volume.
type VolumeLine struct {
	Volume string `json:"volume"`
	Home   string `json:"home,omitempty"` // gateway
	// Lag is the longest of its copies, in seconds, as the home says; missing if the home did not
	// answer. Progress is of a copy that catches up.
	Lag      *float64 `json:"lag,omitempty"`
	Progress string   `json:"progress,omitempty"`
	Waiting  string   `json:"waiting,omitempty"` // why writes wait
	Rates
}

// ClientLine is what one client does with one volume.
type ClientLine struct {
	Client  string `json:"client"`
	Gateway string `json:"gateway"`
	Volume  string `json:"volume"`
	Rates
}

func (r *Rates) all() float64 { return r.Reads + r.Writes + r.Commits + r.Metadata }

// add adds what happened from before to now. Counters that went back began anew.
func (r *Rates) add(before, now nfs.Activity, seconds float64) {
	since := func(before, now uint64) float64 {
		if now < before {
			before = 0
		}
		return float64(now-before) / seconds
	}
	for k, to := range []*float64{&r.Reads, &r.Writes, &r.Commits, &r.Metadata} {
		*to += since(before.Operations[k], now.Operations[k])
	}
	r.Errors += since(before.Errors, now.Errors)
	r.Read += since(before.Read, now.Read)
	r.Written += since(before.Written, now.Written)
	r.took += since(uint64(before.Took), uint64(now.Took)) / float64(time.Second)
	if n := r.all(); n > 0 {
		r.Latency = r.took / n
	}
}

// compare returns what happened between two looks.
func compare(before, now sample) Report {
	out := Report{At: now.at, Seconds: now.at.Sub(before.at).Seconds(), Volumes: []VolumeLine{}, Clients: []ClientLine{}}
	seconds := max(out.Seconds, 0.001)
	volumes := map[string]*VolumeLine{} // by UUID
	type key struct{ gateway, client, volume string }
	was := map[key]nfs.Activity{}
	for gateway, a := range before.answers {
		for _, x := range a.activity {
			was[key{gateway, x.Client, x.Volume}] = x
		}
	}
	for _, gateway := range slices.Sorted(maps.Keys(now.answers)) {
		a := now.answers[gateway]
		if a.err != nil {
			out.Gateways = append(out.Gateways, GatewayProblem{gateway, a.err.Error()})
			continue
		}
		for _, v := range a.volumes {
			line := volumes[v.UUID]
			if line == nil {
				line = &VolumeLine{Volume: v.Name, Home: v.Home}
				volumes[v.UUID] = line
			}
			if v.Home != gateway {
				continue
			}
			line.Home, line.Waiting = gateway, v.Waiting
			lag := 0.0
			for _, c := range v.Replicas {
				lag = max(lag, c.LagSeconds)
				line.Progress = cmp.Or(line.Progress, c.Progress.String())
			}
			line.Lag = &lag
		}
	}
	for _, gateway := range slices.Sorted(maps.Keys(now.answers)) {
		a, first := now.answers[gateway], before.answers[gateway]
		if first.err != nil || a.err != nil {
			continue // from when on is not known
		}
		for _, x := range a.activity {
			v := volumes[x.Volume]
			if v == nil {
				continue // it is gone
			}
			c := ClientLine{Client: x.Client, Gateway: gateway, Volume: v.Volume}
			c.add(was[key{gateway, x.Client, x.Volume}], x, seconds)
			if c.all() > 0 {
				out.Clients = append(out.Clients, c)
			}
			v.add(was[key{gateway, x.Client, x.Volume}], x, seconds)
		}
	}
	for _, v := range volumes {
		out.Volumes = append(out.Volumes, *v)
	}
	slices.SortFunc(out.Volumes, func(a, b VolumeLine) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.Volume, b.Volume))
	})
	slices.SortFunc(out.Clients, func(a, b ClientLine) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}

// clear makes a terminal empty, and begins at its top.
const clear = "\x1b[H\x1b[2J"

// write prints the report for people, with at most so many rows in a table; 0: all.
func (r Report) write(w io.Writer, rows int, live bool) error {
	begin := ""
	if live {
		begin = clear
	}
	if _, err := fmt.Fprintf(w, "%s%s, the last %.1f s\n\n", begin, cli.Stamp(r.At), r.Seconds); err != nil {
		return err
	}
	var volumes, clients cli.Table
	volumes.Row("VOLUME", "HOME", "LAG", "READS/S", "WRITES/S", "COMMITS/S", "META/S", "READ", "WRITTEN", "LATENCY", "ERRORS/S", "NOTE")
	for _, v := range first(r.Volumes, rows) {
		lag := "-"
		if v.Lag != nil {
			lag = cli.Span(*v.Lag)
		}
		volumes.Row(append(append([]string{v.Volume, cmp.Or(v.Home, "-"), lag}, v.cells()...), cmp.Or(v.Waiting, v.Progress, "-"))...)
	}
	clients.Row("CLIENT", "GATEWAY", "VOLUME", "READS/S", "WRITES/S", "COMMITS/S", "META/S", "READ", "WRITTEN", "LATENCY", "ERRORS/S")
	for _, c := range first(r.Clients, rows) {
		clients.Row(append([]string{c.Client, c.Gateway, c.Volume}, c.cells()...)...)
	}
	if err := volumes.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := clients.Write(w); err != nil {
		return err
	}
	for _, g := range r.Gateways {
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", g.Gateway, g.Problem); err != nil {
			return err
		}
	}
	if live {
		return nil
	}
	_, err := fmt.Fprintln(w)
	return err
}

func first[T any](list []T, n int) []T {
	if n == 0 {
		return list
	}
	return list[:min(n, len(list))]
}

// cells are the columns of what was done.
func (r *Rates) cells() (out []string) {
	for _, n := range []float64{r.Reads, r.Writes, r.Commits, r.Metadata} {
		out = append(out, number(n))
	}
	return append(out, cli.Bytes(int64(r.Read))+"/s", cli.Bytes(int64(r.Written))+"/s",
		time.Duration(r.Latency*float64(time.Second)).Round(10*time.Microsecond).String(), number(r.Errors))
}

// number is short: 0, 0.3, 12, 3400.
func number(n float64) string {
	if n > 0 && n < 9.95 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}
