// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// writeReport prints a report for people: volumes, copies, messages, and the gateways if asked for.
func writeReport(w io.Writer, r Report, gateways bool) error {
	if r.Registry != "" {
		if _, err := fmt.Fprintf(w, "%s\n\n", r.Registry); err != nil {
			return err
		}
	}
	if len(r.Volumes) == 0 {
		if _, err := fmt.Fprintln(w, "There are no volumes. `weir volume create -f volume.yaml` makes one."); err != nil {
			return err
		}
	} else if err := writeVolumeTables(w, r); err != nil {
		return err
	}
	if !gateways || len(r.Gateways) == 0 {
		return nil
	}
	var t cli.Table
	t.Row("GATEWAY", "SITE", "ORGANIZATION", "ALIVE", "ADDRESS", "NFS", "PROBLEM")
	for _, g := range r.Gateways {
		alive := "yes"
		if !g.Alive {
			alive = "no"
		}
		t.Row(g.Name, g.Site, g.Organization, alive, g.Addr, cmp.Or(g.NFSAddr, "-"), cmp.Or(g.Problem, "-"))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w)
}

func writeVolumeTables(w io.Writer, r Report) error {
	var volumes, replicas cli.Table
	volumes.Row("VOLUME", "STATE", "HOME", "EPOCH", "MEMBERS", "COMMIT")
	replicas.Row("VOLUME", "REPLICA", "SITE", "STATE", "LAG", "BEHIND", "READS")
	var notes []string
	for _, v := range r.Volumes {
		commit := "-"
		if v.Commit != nil {
			commit = v.Commit.String()
		}
		volumes.Row(v.Name, string(v.State), cmp.Or(cli.With(v.Home, v.HomeSite), "-"), fmt.Sprint(v.Epoch),
			fmt.Sprintf("%d/%d %s", len(v.Members), v.WantedMembers, strings.Join(v.Members, ",")), commit)
		for _, c := range v.Replicas {
			lag, behind, reads := "-", "-", "-"
			if c.LagSeconds != nil {
				lag = cli.Span(*c.LagSeconds)
			}
			if c.LagBytes != nil {
				behind = cli.Bytes(*c.LagBytes)
			}
			if c.Serving != nil {
				reads = map[bool]string{true: "yes", false: "no"}[*c.Serving]
			}
			state := c.State
			if c.Blind {
				state += ", blind"
			}
			replicas.Row(v.Name, c.Gateway, c.Site, state, lag, behind, reads)
			if c.Progress != nil {
				notes = append(notes, fmt.Sprintf("%s at %s: it catches up: %s", v.Name, c.Gateway, c.Progress))
			}
			if c.Problem != "" {
				notes = append(notes, fmt.Sprintf("%s at %s: %s", v.Name, c.Gateway, c.Problem))
			}
			if s := c.Scrub; s.Bad() {
				notes = append(notes, fmt.Sprintf("%s at %s: %d segments are damaged in every copy in reach, and the check of its "+
					"metadata found %d things; look with weir fsck", v.Name, c.Gateway, s.Damaged, s.Findings))
			}
			for _, s := range c.Salvage {
				notes = append(notes, fmt.Sprintf("%s at %s: a copy was set aside: %s", v.Name, c.Gateway, s))
			}
		}
		for _, l := range v.Stores {
			state := "Filling"
			if l.Whole {
				state = "Whole"
			}
			if l.Problem != "" {
				state = "Failing"
				notes = append(notes, fmt.Sprintf("%s in the store of agreement %s: %s", v.Name, l.Agreement, l.Problem))
			}
			id, _, _ := strings.Cut(l.Agreement, "-")
			replicas.Row(v.Name, "store "+id, cmp.Or(l.Site, "-"), state, cli.Span(l.LagSeconds), cli.Bytes(l.LagBytes), "-")
		}
		if v.Message != "" {
			notes = append(notes, fmt.Sprintf("%s: %s: %s", v.Name, v.State, v.Message))
		}
		if v.Remedy != "" {
			notes = append(notes, "    "+v.Remedy)
		}
		if !v.AsOf.IsZero() {
			notes = append(notes, fmt.Sprintf("%s: commit position and lag are the home's last report, %s", v.Name, cli.Stamp(v.AsOf)))
		}
	}
	if err := volumes.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := replicas.Write(w); err != nil {
		return err
	}
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	return err
}
