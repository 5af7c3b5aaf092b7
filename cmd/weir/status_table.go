// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// writeReport prints a report for people: volumes, their copies, what there is to say, and, with gateways, these.
func writeReport(w io.Writer, r Report, gateways bool) error {
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
	var t table
	t.row("GATEWAY", "SITE", "ORGANIZATION", "ALIVE", "ADDRESS", "NFS", "PROBLEM")
	for _, g := range r.Gateways {
		alive := "yes"
		if !g.Alive {
			alive = "no"
		}
		t.row(g.Name, g.Site, g.Organization, alive, g.Addr, cmp.Or(g.NFSAddr, "-"), cmp.Or(g.Problem, "-"))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.write(w)
}

func writeVolumeTables(w io.Writer, r Report) error {
	var volumes, replicas table
	volumes.row("VOLUME", "STATE", "HOME", "EPOCH", "MEMBERS", "COMMIT")
	replicas.row("VOLUME", "REPLICA", "SITE", "STATE", "LAG", "BEHIND", "READS")
	var notes []string
	for _, v := range r.Volumes {
		commit := "-"
		if v.Commit != nil {
			commit = v.Commit.String()
		}
		volumes.row(v.Name, string(v.State), cmp.Or(at(v.Home, v.HomeSite), "-"), fmt.Sprint(v.Epoch),
			fmt.Sprintf("%d/%d %s", len(v.Members), v.WantedMembers, strings.Join(v.Members, ",")), commit)
		for _, c := range v.Replicas {
			lag, behind, reads := "-", "-", "-"
			if c.LagSeconds != nil {
				lag = secondsText(*c.LagSeconds)
			}
			if c.LagBytes != nil {
				behind = bytesText(*c.LagBytes)
			}
			if c.Serving != nil {
				reads = map[bool]string{true: "yes", false: "no"}[*c.Serving]
			}
			replicas.row(v.Name, c.Gateway, c.Site, c.State, lag, behind, reads)
			if c.Problem != "" {
				notes = append(notes, fmt.Sprintf("%s at %s: %s", v.Name, c.Gateway, c.Problem))
			}
			for _, s := range c.Salvage {
				notes = append(notes, fmt.Sprintf("%s at %s: a copy was set aside: %s", v.Name, c.Gateway, s))
			}
		}
		if v.Message != "" {
			notes = append(notes, fmt.Sprintf("%s: %s: %s", v.Name, v.State, v.Message))
		}
		if v.Remedy != "" {
			notes = append(notes, "    "+v.Remedy)
		}
		if !v.AsOf.IsZero() {
			notes = append(notes, fmt.Sprintf("%s: commit position and lag are the home's last report, %s", v.Name, stamp(v.AsOf)))
		}
	}
	if err := volumes.write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := replicas.write(w); err != nil {
		return err
	}
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

// secondsText is a lag for people.
func secondsText(s float64) string {
	if s < 0.05 {
		return "0s"
	}
	if s < 60 {
		return fmt.Sprintf("%.1fs", s)
	}
	return fmt.Sprintf("%dm%02ds", int(s)/60, int(s)%60)
}

// bytesText is an amount for people, to one digit.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}
