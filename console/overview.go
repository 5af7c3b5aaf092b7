// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// overviewPage is what the page of that name shows.
type overviewPage struct {
	Map     drawing
	Sites   paged[v1alpha1.Site]
	Volumes paged[volumeLine]
	// Moves are agreements in which it is this side's move: the first few of AllMoves.
	Moves    []agreementLine
	AllMoves int
}

// fewMoves is how many the overview shows.
const fewMoves = 10

// volumeLine is a volume in the overview.
type volumeLine struct {
	v1alpha1.GeoVolumeContent
	Reason, Message string
}

// overview shows the sites and the volumes between them.
func overview(v *visit) error {
	var sites v1alpha1.SiteList
	var volumes v1alpha1.GeoVolumeContentList
	var agreements []agreementLine
	var forbidden string
	if err := together(func() (err error) { // most of the time goes by at the API server
		forbidden, err = list(v.Context(), v.s.api, &volumes)
		return err
	}, func() error {
		_, err := list(v.Context(), v.s.api, &sites)
		return err
	}, func() (err error) {
		agreements, _, err = v.agreements()
		return err
	}); err != nil {
		return err
	}
	q := v.URL.Query()
	p := overviewPage{Map: drawMap(sites.Items, volumes.Items)}
	worse := func(reason string) int {
		return map[string]int{"bad": 0, "mind": 1, "good": 2, "plain": 2}[tone(reason)]
	}
	slices.SortStableFunc(sites.Items, func(a, b v1alpha1.Site) int {
		return cmp.Compare(worse(ready(a.Status.Conditions).Reason), worse(ready(b.Status.Conditions).Reason))
	})
	p.Sites = pageBy("sites", sites.Items, q, "")
	var lines []volumeLine
	for _, c := range volumes.Items {
		r := ready(c.Status.Conditions)
		if matches(q.Get("q"), c.Spec.FederationName, string(c.Spec.Owner), c.Status.Home.Site, r.Reason) {
			lines = append(lines, volumeLine{c, r.Reason, r.Message})
		}
	}
	slices.SortFunc(lines, func(a, b volumeLine) int {
		return cmp.Or(cmp.Compare(worse(a.Reason), worse(b.Reason)), cmp.Compare(a.Spec.FederationName, b.Spec.FederationName))
	})
	p.Volumes = page(lines, q, forbidden)
	p.Moves = slices.DeleteFunc(agreements, func(l agreementLine) bool { return !l.Ours })
	p.AllMoves = len(p.Moves)
	p.Moves = p.Moves[:min(fewMoves, len(p.Moves))]
	return v.show("overview", "Overview", p, 0)
}

// together does all at once, and returns the first error.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	var work sync.WaitGroup
	for i, f := range all {
		work.Go(func() {
			defer func() { // as net/http does: one page that fails is not all
				if why := recover(); why != nil {
					errs[i] = fmt.Errorf("the page failed: %v", why)
				}
			}()
			errs[i] = f()
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}
