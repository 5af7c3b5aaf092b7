// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// drawing is a map of sites: where each has a place, and lines from homes to copies. It is a
// scheme, unless all sites have labels that tell where they are.
type drawing struct {
	Width, Height int
	Dots          []dot
	Lines         []line
	// Left is how many lines are not drawn.
	Left int
}

// dot is a site.
type dot struct {
	X, Y                      float64
	Site, Organization, State string
	Tone                      string
	Homes, Copies             int
	Local                     bool
}

// line is what volumes whose home is at one site have at another.
type line struct {
	X1, Y1, X2, Y2 float64
	From, To       string
	Copies         int
	// Lag is the largest, and Tone how good the worst is.
	Lag, Tone string
	Wide      float64
}

// Labels of a site that tell where it is, in degrees.
const (
	latitude  = "geo.weir.dev/latitude"
	longitude = "geo.weir.dev/longitude"
)

// mostLines is how many are drawn; more than that nobody can tell from each other.
const mostLines = 150

const mapWidth, mapHeight, mapEdge = 720, 360, 70.0

// drawMap places sites, and draws what is between them.
func drawMap(sites []v1alpha1.Site, volumes []v1alpha1.GeoVolumeContent) drawing {
	d := drawing{Width: mapWidth, Height: mapHeight}
	at := map[string]int{}
	order := slices.Clone(sites)
	slices.SortFunc(order, func(a, b v1alpha1.Site) int {
		return cmp.Or(cmp.Compare(a.Spec.Organization, b.Spec.Organization), cmp.Compare(a.Name, b.Name))
	})
	for i, s := range order {
		r := ready(s.Status.Conditions)
		x, y := circle(i, len(order))
		at[s.Name] = len(d.Dots)
		d.Dots = append(d.Dots, dot{X: x, Y: y, Site: s.Name, Organization: s.Spec.Organization, State: r.Reason, Tone: tone(r.Reason),
			Local: s.Status.Local})
	}
	d.locate(order)
	between := map[[2]string]*line{}
	var pairs [][2]string
	rank := map[string]int{"good": 0, "plain": 0, "mind": 1, "bad": 2}
	worse := func(l *line, t string) {
		if rank[t] >= rank[l.Tone] {
			l.Tone = t
		}
	}
	add := func(from, to, state, lag string) {
		i, ok := at[from]
		j, there := at[to]
		if !ok || !there || i == j {
			return
		}
		k := [2]string{from, to}
		l := between[k]
		if l == nil {
			l = &line{X1: d.Dots[i].X, Y1: d.Dots[i].Y, X2: d.Dots[j].X, Y2: d.Dots[j].Y, From: from, To: to, Tone: "good"}
			between[k] = l
			pairs = append(pairs, k)
		}
		l.Copies++
		worse(l, tone(state))
		if longer(lag, l.Lag) {
			l.Lag = lag
		}
	}
	for _, v := range volumes {
		home := v.Status.Home.Site
		if i, ok := at[home]; ok {
			d.Dots[i].Homes++
		}
		for _, r := range v.Status.Replicas {
			if i, ok := at[string(r.Site)]; ok {
				d.Dots[i].Copies++
			}
			add(home, string(r.Site), r.State, r.Lag)
		}
		for _, s := range v.Status.Stores {
			add(home, string(s.Site), s.State, s.Lag)
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int {
		x, y := between[a], between[b]
		return cmp.Or(cmp.Compare(rank[y.Tone], rank[x.Tone]), cmp.Compare(y.Copies, x.Copies), cmp.Compare(a[0], b[0]),
			cmp.Compare(a[1], b[1]))
	})
	d.Left = max(0, len(pairs)-mostLines)
	pairs = pairs[:len(pairs)-d.Left]
	slices.Reverse(pairs) // what is not well lies on top
	for _, k := range pairs {
		l := between[k]
		l.Wide = 1.5 + math.Log2(float64(l.Copies))
		d.Lines = append(d.Lines, *l)
	}
	return d
}

// circle is the place of one of n sites on an ellipse.
func circle(i, n int) (x, y float64) {
	if n == 1 {
		return mapWidth / 2, mapHeight / 2
	}
	a := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
	return mapWidth/2 + (mapWidth/2-mapEdge)*math.Cos(a), mapHeight/2 + (mapHeight/2-mapEdge)*math.Sin(a)
}

// locate moves the sites to where their labels say that they are, if all tell it.
func (d *drawing) locate(sites []v1alpha1.Site) {
	if len(sites) < 2 {
		return
	}
	lon, lat := make([]float64, len(sites)), make([]float64, len(sites))
	for i, s := range sites {
		var err1, err2 error
		lat[i], err1 = strconv.ParseFloat(s.Labels[latitude], 64)
		lon[i], err2 = strconv.ParseFloat(s.Labels[longitude], 64)
		if err1 != nil || err2 != nil || math.Abs(lat[i]) > 90 || math.Abs(lon[i]) > 180 {
			return
		}
	}
	scale := func(v, least, most, size float64) float64 {
		if most == least {
			return size / 2
		}
		return mapEdge + (v-least)/(most-least)*(size-2*mapEdge)
	}
	for i := range d.Dots {
		d.Dots[i].X = scale(lon[i], slices.Min(lon), slices.Max(lon), mapWidth)
		d.Dots[i].Y = mapHeight - scale(lat[i], slices.Min(lat), slices.Max(lat), mapHeight)
	}
}

// longer reports whether a lag as a status shows it is more than another.
func longer(a, b string) bool {
	seconds := func(s string) float64 {
		if s == "" {
			return -1
		}
		unit := map[byte]float64{'s': 1, 'm': 60, 'h': 3600}[s[len(s)-1]]
		n, err := strconv.ParseFloat(s[:len(s)-1], 64)
		if err != nil {
			return 0.5 // <1s
		}
		return n * unit
	}
	return seconds(a) > seconds(b)
}

// Title tells of a line what a picture cannot.
func (l line) Title() string {
	return fmt.Sprintf("%d copies of volumes of %s at %s, at most %s behind", l.Copies, l.From, l.To, cmp.Or(l.Lag, "unknown"))
}
