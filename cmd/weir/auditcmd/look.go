// SPDX-License-Identifier: Apache-2.0

package auditcmd

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/users"
	"github.com/weir-storage/weir/pki"
)

// notTakenBack is what to do about a key that somebody should not have.
const notTakenBack = "What it has it can read; when the home has replaced the key, nothing later: see weir volume keys"

// expiresSoon is how long before an authority's end it is told.
const expiresSoon = 60 * 24 * time.Hour

// look looks at everything for one organization.
type look struct {
	everything
	organization string
	charter      *pki.Charter // nil: there is none
	founders     []string     // certificates (PEM) of founding authorities
	now          time.Time
	// said reads the word for an epoch that began by force.
	said func(federation.Control, federation.EpochStart) (pki.Identity, time.Time, error)

	sites    map[string]*Site
	findings []Finding
}

func (l *look) report(federation string) Report {
	l.sites = map[string]*Site{}
	l.federation()
	r := Report{Federation: federation, Organization: l.organization, Sites: []Site{}, Findings: []Finding{}}
	for _, name := range slices.Sorted(maps.Keys(l.everything.sites)) {
		l.lender(l.everything.sites[name])
	}
	for _, record := range l.unread {
		l.find("record "+record, "Upgrade this program, or restore the record", "it cannot be read, so what it allows is not seen here")
	}
	for _, v := range slices.SortedFunc(maps.Values(l.volumes), func(a, b volume) int { return strings.Compare(a.Name, b.Name) }) {
		if v.Owner == l.organization {
			r.Volumes++
			l.volume(v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.sites)) {
		r.Sites = append(r.Sites, *l.sites[name])
	}
	r.Findings = append(r.Findings, l.findings...)
	return r
}

type volume = federation.Volume

func (l *look) find(about, do, what string, a ...any) {
	l.findings = append(l.findings, Finding{About: about, What: fmt.Sprintf(what, a...), Do: do})
}

// at is a site in the report.
func (l *look) at(name string) *Site {
	if l.sites[name] == nil {
		l.sites[name] = &Site{Site: name, Organization: l.everything.sites[name].Organization}
	}
	return l.sites[name]
}

// foreign reports whether a site is another organization's, or nobody's any more.
func (l *look) foreign(site string) bool {
	return l.everything.sites[site].Organization != l.organization
}

// federation looks at who vouches for whom.
func (l *look) federation() {
	if l.charter == nil {
		l.find("the federation", "Make a charter: weir federation admit",
			"it has no charter, so who has the founding authority's key can be anybody")
		return
	}
	for _, o := range l.charter.Organizations {
		about := "organization " + o.Name
		if o.Expelled != nil {
			continue
		}
		if len(o.Authorities) > 1 {
			l.find(about, "When all its certificates are of the new one: weir federation drop", "%d authorities vouch for it",
				len(o.Authorities))
		}
		for _, text := range o.Authorities {
			if slices.Contains(l.founders, text) {
				l.find(about, "Have it make its own: docs/operations.md, organizations with their own authorities",
					"the founding authority vouches for it, and can be it")
			}
			b, _ := pem.Decode([]byte(text))
			if b == nil {
				continue // ReadCharter read it
			}
			print, err := pki.Fingerprint(text)
			cert, err2 := x509.ParseCertificate(b.Bytes)
			if err == nil && err2 == nil && cert.NotAfter.Sub(l.now) < expiresSoon {
				l.find(about, "Have it make another, and admit that beside it: weir federation admit", "its authority %s ends at %s",
					print[:16], cli.Stamp(cert.NotAfter))
			}
		}
	}
}

// outside says why an organization is not of the federation; "": it is.
func (l *look) outside(organization string) string {
	if l.charter == nil {
		return ""
	}
	switch o := l.charter.Find(organization); {
	case o == nil:
		return "which the charter does not have"
	case o.Expelled != nil:
		return "which was expelled"
	}
	return ""
}

// knows reports whether anything says that there is an organization.
func (l *look) knows(organization string) bool {
	for _, s := range l.everything.sites {
		if s.Organization == organization {
			return true
		}
	}
	for _, v := range l.volumes {
		if v.Owner == organization {
			return true
		}
	}
	return l.charter != nil && l.charter.Find(organization) != nil
}

// lender looks at what a site of the organization lends.
func (l *look) lender(s federation.Site) {
	if s.Organization == l.organization && slices.Contains(s.Lends, federation.LendsToAll) {
		l.find("site "+s.Name, "Name the organizations in lends of its gateways", "every organization may have copies there")
	}
}

// volume counts what sites can do with a volume, and looks at it.
func (l *look) volume(v volume) {
	about := "volume " + v.Name
	why := map[string]bool{} // sites with a reason to have its key
	for _, s := range v.Sites {
		if v.IsBlind(s) {
			l.at(s).Blind++
		} else {
			l.at(s).Copies++
			why[s] = true
		}
	}
	l.home(about, v, why)
	for _, s := range v.Blind { // also as member, or steward
		delete(why, s)
	}
	if v.Deleted { // nobody uses it
		l.keys(about, v, why)
		return
	}
	writes, reads := map[string]bool{}, map[string]bool{}
	for _, g := range v.Grants {
		why[g.Site] = true
		if g.Access == federation.ReadWrite {
			writes[g.Site] = true
		} else {
			reads[g.Site] = true
		}
		if _, ok := l.everything.sites[g.Site]; !ok {
			l.find(about, "Take the grant back, or correct the name", "it is granted to site %s, which is not registered", g.Site)
		}
	}
	bare := map[string]int{}
	for _, a := range l.admissions[v.UUID] {
		if v.IsBlind(a.Site) {
			continue // the owner allows nothing there
		}
		if a.Node != "" && l.foreign(a.Site) && !writes[a.Site] && !reads[a.Site] {
			continue // its site wrote it, and the owner allows nothing there
		}
		why[a.Site] = true
		l.at(a.Site).Clients++
		if a.Node != "" && l.foreign(a.Site) {
			continue // as far as the grant goes
		}
		if a.Access == federation.ReadWrite {
			writes[a.Site] = true
		} else {
			reads[a.Site] = true
		}
		if a.Node == "" && v.ClientsAt(a.Site).Certificates != users.CertificatesRequired {
			bare[a.Site]++
		}
	}
	for s := range writes {
		l.at(s).Writes++
	}
	for s := range reads {
		if !writes[s] {
			l.at(s).Reads++
		}
	}
	for _, s := range slices.Sorted(maps.Keys(bare)) {
		do := "Ask for certificates: weir volume clients " + v.Name + " --site " + s + " --certificates Required"
		if v.OwnerSite != "" { // which it cannot
			do = "Let clusters claim it instead, and take these back: weir volume expel"
		}
		l.find(about, do, "%d clients at site %s are known by their address only", bare[s], s)
	}
	for _, s := range slices.Sorted(maps.Keys(writes)) {
		c := v.ClientsAt(s)
		if l.foreign(s) && c.Squash != users.SquashRoot && c.Squash != users.SquashAll && len(c.UIDs)+len(c.GIDs) == 0 {
			l.find(about, "Say who its users are, in clients of the grant, or with weir volume clients "+v.Name+" --site "+s,
				"root of the clients at site %s (%s) is root of the volume", s, l.of(s))
		}
	}
	l.keys(about, v, why)
}

// home looks at who decides about a volume.
func (l *look) home(about string, v volume, why map[string]bool) {
	c, ok := l.controls[v.UUID]
	if !ok {
		return
	}
	for _, m := range c.Members {
		why[m.Site] = true
	}
	l.at(c.Home.Site).Homes++
	if l.foreign(c.Home.Site) {
		l.find(about, "Move it, if that is not meant: weir failover "+v.Name+" --to SITE", "its home is at site %s (%s), which decides "+
			"what it has", c.Home.Site, l.of(c.Home.Site))
	}
	if n := len(c.History); n > 0 && c.History[n-1].Forced { // until the next epoch
		by := ", and no word of a person shows that"
		if who, at, err := l.said(c, c.History[n-1]); err == nil {
			by = fmt.Sprintf(" by the word of %s at %s", who, cli.Stamp(at))
		}
		l.find(about, "See what was set aside: weir status "+v.Name, "epoch %d began by force%s: writes of before may be missing",
			c.History[n-1].Epoch, by)
	}
}

// keys looks at who can read a volume.
func (l *look) keys(about string, v volume, why map[string]bool) {
	// Who has only an earlier data key reads nothing that is written now: that was looked at
	// before.
	newest := l.keyrings[v.UUID].Newest()
	for _, s := range slices.Sorted(maps.Keys(newest)) {
		l.at(s).Keys++
		_, registered := l.everything.sites[s]
		switch {
		case !registered:
			l.find(about, notTakenBack, "site %s, which is not registered any more, has its key", s)
		case l.foreign(s) && l.outside(l.of(s)) != "":
			l.find(about, notTakenBack, "site %s of %s, %s, has its key", s, l.of(s), l.outside(l.of(s)))
		case !why[s]:
			l.find(about, notTakenBack, "site %s (%s) has its key, and no reason to have it any more", s, l.of(s))
		}
	}
}

func (l *look) of(site string) string { return l.everything.sites[site].Organization }
