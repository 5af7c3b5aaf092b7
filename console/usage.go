// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"html/template"
	"image/color"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// usagePage is what the page of that name shows.
type usagePage struct {
	Usage paged[v1alpha1.StorageUsage]
	Q     string
	// Borrowed and Lent are all together, by the hosts' counts.
	Borrowed, Lent []string
	Differ         int
}

// sums are what is used of each kind, in words.
func sums(used map[v1alpha1.RoomKind]int64, words func(kind) string) (out []string) {
	for _, k := range allKinds {
		if n := used[k.Name]; n > 0 {
			out = append(out, bytesText(n)+" "+words(k))
		}
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out
}

// allUsage reads all counts, without how it was before, which is most of what the objects are.
func allUsage(v *visit) (all []v1alpha1.StorageUsage, forbidden string, err error) {
	rows, forbidden, err := v.rows("storageusages", "Guest", "Host", "Kind", "Differs", "ByGuest", "ByHost")
	for _, r := range rows {
		u := v1alpha1.StorageUsage{Status: v1alpha1.StorageUsageStatus{Guest: r["Guest"], Host: r["Host"], Kind: r["Kind"],
			Differs: r["Differs"]}}
		u.Name = r["Name"]
		if u.Status.ByGuest, err = r.counters("ByGuest"); err != nil {
			return nil, "", err
		}
		if u.Status.ByHost, err = r.counters("ByHost"); err != nil {
			return nil, "", err
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b v1alpha1.StorageUsage) int {
		return cmp.Or(cmp.Compare(a.Status.Host, b.Status.Host), cmp.Compare(a.Status.Guest, b.Status.Guest), cmp.Compare(a.Name, b.Name))
	})
	return all, forbidden, err
}

// usages shows what is used of all agreements.
func usages(v *visit) error {
	all, forbidden, err := allUsage(v)
	if err != nil {
		return err
	}
	q := v.URL.Query()
	p := usagePage{Q: q.Get("q")}
	us := v.home().Organization
	var lines []v1alpha1.StorageUsage
	borrowed, lent := map[v1alpha1.RoomKind]int64{}, map[v1alpha1.RoomKind]int64{}
	for _, u := range all {
		if !matches(p.Q, u.Name, u.Status.Guest, u.Status.Host, u.Status.Kind) {
			continue
		}
		lines = append(lines, u)
		by := cmp.Or(u.Status.ByHost, u.Status.ByGuest)
		switch {
		case by == nil:
		case u.Status.Host == us:
			lent[kindOf(u.Status.Kind).Name] += by.Stored
		default:
			borrowed[kindOf(u.Status.Kind).Name] += by.Stored
		}
		if u.Status.Differs != "" {
			p.Differ++
		}
	}
	p.Borrowed = sums(borrowed, func(k kind) string { return k.Borrowed })
	p.Lent = sums(lent, func(k kind) string { return k.Lends })
	p.Usage = page(lines, q, forbidden)
	return v.show("usage", "Usage", p, 0)
}

// usageCSV is the same for accounts.
func usageCSV(v *visit) error {
	all, forbidden, err := allUsage(v)
	if err != nil {
		return err
	}
	if forbidden != "" { // an empty table would say that nothing was used
		return &failed{http.StatusForbidden, forbidden}
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"agreement", "guest", "host", "side", "at", "stored", "gibibyte_hours", "written", "read", "writes", "reads",
		"deletions", "kind"}}
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	for _, u := range all {
		for side, c := range map[string]*v1alpha1.UsageCounters{"guest": u.Status.ByGuest, "host": u.Status.ByHost} {
			if c == nil {
				continue
			}
			k, calls := kindOf(u.Status.Kind), []string{"", "", "", "", ""}
			if k.Store {
				calls = []string{n(c.Written), n(c.Read), n(c.Writes), n(c.Reads), n(c.Deletions)}
			}
			rows = append(rows, slices.Concat([]string{u.Name, cell(u.Status.Guest), cell(u.Status.Host), side,
				c.At.UTC().Format(time.RFC3339), n(c.Stored), c.GibibyteHours}, calls, []string{string(k.Name)}))
		}
	}
	slices.SortFunc(rows[1:], func(a, b []string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[3], b[3])) })
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="weir-usage.csv"`)
	if !strings.Contains(v.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = b.WriteTo(v.w) // who went does not read it
		return nil
	}
	// It has one line for each side, and nothing is left out.
	v.w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(v.w)
	_, _ = b.WriteTo(z)
	_ = z.Close()
	return nil
}

// cell is a text that no table takes for a formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// chart draws what was used over time, as SVG; "": there is nothing to draw. label is a constant.
func chart(history []v1alpha1.UsageSample, label string) (template.HTML, error) {
	if len(history) < 2 {
		return "", nil
	}
	points := make(plotter.XYs, len(history))
	for i, s := range history {
		points[i].X, points[i].Y = float64(s.At.Unix()), float64(s.Stored)/(1<<30)
	}
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = label, 0
	p.X.Tick.Marker = plot.TimeTicks{Format: "01-02 15:04"}
	if span := history[len(history)-1].At.Sub(history[0].At.Time); span > 96*time.Hour {
		p.X.Tick.Marker = plot.TimeTicks{Format: "2006-01-02"}
	}
	l, err := plotter.NewLine(points)
	if err != nil {
		return "", err
	}
	l.Width, l.Color, l.FillColor = vg.Points(1.5), color.RGBA{R: 0x1d, G: 0x5f, B: 0xa8, A: 0xff}, color.RGBA{R: 0xd6, G: 0xe4, B: 0xf5,
		A: 0xff}
	p.Add(plotter.NewGrid(), l)
	canvas := vgsvg.New(vg.Points(560), vg.Points(220))
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, _ := bytes.Cut(b.Bytes(), []byte("<svg"))
	// It is made here, of numbers and times.
	return template.HTML("<svg role=\"img\" aria-label=\"" + label + " over time\"" + string(svg)), nil //nolint:gosec // see above
}
