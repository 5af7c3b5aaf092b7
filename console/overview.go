// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"slices"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// overviewPage is what the page of that name shows.
type overviewPage struct {
	Map     drawing
	Sites   []v1alpha1.Site
	Volumes paged[volumeLine]
	// Moves are agreements in which it is this side's move.
	Moves []v1alpha1.StorageAgreement
}

// volumeLine is a volume in the overview.
type volumeLine struct {
	v1alpha1.GeoVolumeContent
	Reason, Message string
}

// overview shows the sites and the volumes between them.
func overview(v *visit) error {
	var sites v1alpha1.SiteList
	var volumes v1alpha1.GeoVolumeContentList
	var agreements v1alpha1.StorageAgreementList
	if _, err := list(v.Context(), v.s.api, &sites); err != nil {
		return err
	}
	forbidden, err := list(v.Context(), v.s.api, &volumes)
	if err != nil {
		return err
	}
	if _, err := list(v.Context(), v.s.api, &agreements); err != nil {
		return err
	}
	p := overviewPage{Sites: sites.Items, Map: drawMap(sites.Items, volumes.Items)}
	q := v.URL.Query()
	var lines []volumeLine
	for _, c := range volumes.Items {
		r := ready(c.Status.Conditions)
		if matches(q.Get("q"), c.Spec.FederationName, string(c.Spec.Owner), c.Status.Home.Site, r.Reason) {
			lines = append(lines, volumeLine{c, r.Reason, r.Message})
		}
	}
	slices.SortFunc(lines, func(a, b volumeLine) int {
		worse := func(l volumeLine) int {
			return map[string]int{"bad": 0, "mind": 1}[tone(l.Reason)] + map[string]int{"good": 2, "plain": 2}[tone(l.Reason)]
		}
		return cmp.Or(cmp.Compare(worse(a), worse(b)), cmp.Compare(a.Spec.FederationName, b.Spec.FederationName))
	})
	p.Volumes = page(lines, q, forbidden)
	for _, a := range agreements.Items {
		if a.Status.Move != "" && a.Status.Move == a.Status.Role {
			p.Moves = append(p.Moves, a)
		}
	}
	return v.show("overview", "Overview", p, 0)
}
