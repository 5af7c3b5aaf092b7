// SPDX-License-Identifier: Apache-2.0

// Package spec reads what a person wrote about a volume (volume.yaml, later the GeoVolume kind),
// gives every field that is missing the value a careful administrator would choose, and refuses
// what cannot be: a message names the field, the value and what to write instead. It also chooses
// sites (Place).
//
// Defaults: 2 copies, spread over Site, Keyed; acknowledge Gateway (Sites: 2 sites), whenDegraded
// Stall, maxLag 1m and 1Gi; consistency Strong (Bounded: maxStaleness 5s); cache without a limit of
// its own; no preferred home.
package spec

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
)

// APIVersion and Kind are what a manifest begins with.
const (
	APIVersion = "storage.weir.dev/v1alpha1"
	Kind       = "GeoVolume"
)

// VolumeManifest is a volume.yaml.
type VolumeManifest struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Metadata   Metadata              `json:"metadata"`
	Spec       federation.VolumeSpec `json:"spec"`
}

// Metadata names the volume. What Kubernetes has besides is kept and otherwise not used.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// FieldError is one thing wrong with a manifest.
type FieldError struct {
	// Field is its path, such as spec.durability.sites.
	Field string
	// Value is what was written; empty when nothing was.
	Value string
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.Problem
	}
	return e.Field + ": " + e.Value + ": " + e.Problem
}

// problems collects FieldErrors, so that a person sees all at once.
type problems []error

func (p *problems) add(field string, value any, problem string, a ...any) {
	v := fmt.Sprint(value)
	if s, ok := value.(string); ok && s != "" {
		v = fmt.Sprintf("%q", s)
	}
	*p = append(*p, &FieldError{Field: field, Value: v, Problem: fmt.Sprintf(problem, a...)})
}

// Default fills the fields that are missing.
func Default(s *federation.VolumeSpec) {
	set := func(field *int, v int) {
		if *field == 0 {
			*field = v
		}
	}
	set(&s.Replication.Copies, 2)
	or(&s.Replication.Spread, federation.SpreadSite)
	or(&s.Durability.Acknowledge, federation.AcknowledgeGateway)
	if s.Durability.Acknowledge == federation.AcknowledgeSites {
		set(&s.Durability.Sites, 2)
	}
	or(&s.Durability.WhenDegraded, federation.WhenDegradedStall)
	or(&s.Durability.MaxLag.Time, federation.Duration(time.Minute))
	or(&s.Durability.MaxLag.Bytes, 1<<30)
	or(&s.Consistency.Mode, federation.ConsistencyStrong)
	if s.Consistency.Mode == federation.ConsistencyBounded {
		or(&s.Consistency.MaxStaleness, federation.Duration(5*time.Second))
	}
}

func or[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}

// Validate checks a manifest with defaults; it returns every FieldError, joined.
func Validate(m VolumeManifest) error {
	var p problems
	if m.APIVersion != APIVersion {
		p.add("apiVersion", m.APIVersion, "not known here: write %s", APIVersion)
	}
	if m.Kind != Kind {
		p.add("kind", m.Kind, "not known here: write %s", Kind)
	}
	if m.Metadata.Name == "" {
		p.add("metadata.name", "", "missing: give the volume a name")
	} else if federation.CheckLabel("volume", m.Metadata.Name) != nil {
		p.add("metadata.name", m.Metadata.Name, "not a DNS label: use 1 to 63 lower-case letters, digits and '-', with a letter or "+
			"digit first and last")
	}
	validateSpec(&p, m.Spec)
	return errors.Join(p...)
}

func validateSpec(p *problems, s federation.VolumeSpec) {
	switch {
	case s.Size < 0:
		p.add("spec.size", s.Size, "negative: write how much the volume may hold, such as 10Gi")
	case s.Size == 0:
		p.add("spec.size", "", "missing or 0: write how much the volume may hold, such as 10Gi")
	}
	if s.Replication.Copies < 1 {
		p.add("spec.replication.copies", s.Replication.Copies, "a volume has at least 1 copy")
	}
	if n := s.Replication.Stores; n < 0 || n > 16 {
		p.add("spec.replication.stores", n, "not from 0 to 16: write in how many lent stores the volume is to be")
	}
	if o := s.Replication.OtherOrganizations; o != "" {
		oneOf(p, "spec.replication.otherOrganizations", o, federation.CopiesKeyed, federation.CopiesBlind)
	}
	oneOf(p, "spec.replication.spread", s.Replication.Spread, federation.SpreadOrganization, federation.SpreadRegion, federation.SpreadSite)
	validateSites(p, s)
	validateDurability(p, s)
	if s.Consistency.Mode == "Disconnected" {
		p.add("spec.consistency.mode", "Disconnected", "not available yet: write Strong or Bounded")
	} else {
		oneOf(p, "spec.consistency.mode", s.Consistency.Mode, federation.ConsistencyStrong, federation.ConsistencyBounded)
	}
	switch {
	case s.Consistency.MaxStaleness < 0:
		p.add("spec.consistency.maxStaleness", s.Consistency.MaxStaleness, "negative: write a time span, such as 5s")
	case s.Consistency.MaxStaleness > 0 && s.Consistency.Mode == federation.ConsistencyStrong:
		p.add("spec.consistency.maxStaleness", s.Consistency.MaxStaleness, "only for mode: Bounded; Strong has none: remove it, or "+
			"write mode: Bounded")
	}
	if s.Cache.Size < 0 {
		p.add("spec.cache.size", s.Cache.Size, "negative: write an amount such as 20Gi, or leave it out for no limit of its own")
	}
	switch c := s.Cache; {
	case c.Reserve < 0:
		p.add("spec.cache.reserve", c.Reserve, "negative: write an amount such as 5Gi, or leave it out for none")
	case c.Size > 0 && c.Reserve > c.Size:
		p.add("spec.cache.reserve", c.Reserve, "more than spec.cache.size (%v), so it would never be used: lower it, or raise size", c.Size)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Cache.Pool)) {
		if v := s.Cache.Pool[k]; !labelName.MatchString(k) || v != "" && !labelValue.MatchString(v) {
			p.add("spec.cache.pool."+k, v, "not a label as pools have them: write one such as tier: nvme")
		}
	}
	for _, x := range s.Clients.Problems() {
		p.add("spec.clients."+x[0], x[1], "%s", x[2])
	}
	for _, x := range s.Snapshots.Problems() {
		p.add("spec.snapshots."+x[0], x[1], "%s", x[2])
	}
	for _, x := range s.Trash.Problems() {
		p.add("spec.trash."+x[0], x[1], "%s", x[2])
	}
	r := s.Replication
	for _, x := range s.Encryption.ProblemsWith(KeepsAll(r)) {
		p.add("spec.encryption."+x[0], x[1], "%s", x[2])
	}
	for _, x := range s.Quota.Problems() {
		p.add("spec.quota."+x[0], x[1], "%s", x[2])
	}
	for _, x := range s.Scrub.Problems() {
		p.add("spec.scrub."+x[0], x[1], "%s", x[2])
	}
	for _, x := range s.Compaction.Problems() {
		p.add("spec.compaction."+x[0], x[1], "%s", x[2])
	}
	if s.Encryption.Erasable() && !s.Encryption.AcceptOneSite &&
		(r.Copies-len(r.Sites.Blind) < 2 || r.OtherOrganizations == federation.CopiesBlind) {
		p.add("spec.encryption.erase", s.Encryption.Erase, "only one site may have what opens the keys, on one pool, and with that pool "+
			"the volume is lost whatever stores have: have 2 copies that are not blind, or write acceptOneSite: true")
	}
	validateTiers(p, s.Cache)
	validatePins(p, s.Cache.Pin)
}

// Labels are Kubernetes' labels.
var (
	labelName  = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

func validateTiers(p *problems, c federation.Cache) {
	const field = "spec.cache."
	for _, f := range []struct {
		name string
		kept federation.Kept
	}{{"arc", c.ARC}, {"l2arc", c.L2ARC}} {
		if f.kept != "" {
			oneOf(p, field+f.name, f.kept, federation.KeptAll, federation.KeptMetadata, federation.KeptNone)
		}
	}
	if c.Log != "" {
		oneOf(p, field+"log", c.Log, federation.LogLatency, federation.LogThroughput)
	}
	if c.Prefetch != "" {
		oneOf(p, field+"prefetch", c.Prefetch, federation.PrefetchNone, federation.PrefetchFile, federation.PrefetchDirectory,
			federation.PrefetchPattern)
	}
	if c.Compression != "" {
		oneOf(p, field+"compression", c.Compression, federation.CompressionFast, federation.CompressionNone, federation.CompressionStrong)
	}
	if c.Memory != 0 && c.Memory < minMemory {
		p.add(field+"memory", c.Memory, "less than %v: write an amount such as 64Mi, or leave it out for no limit of its own", minMemory)
	}
	if c.ReadAhead != nil && (*c.ReadAhead < 0 || *c.ReadAhead > maxReadAhead) {
		p.add(field+"readAhead", *c.ReadAhead, "not from 0 to %v: write an amount such as 4Mi, or 0 for none", maxReadAhead)
	}
	if b := c.BlockSize; b != 0 && (b < federation.MinBlockSize || b > federation.MaxBlockSize || b&(b-1) != 0) {
		p.add(field+"blockSize", b, "not a power of two from %v to %v: write 4Ki, 8Ki, 16Ki, 32Ki or 64Ki", federation.MinBlockSize,
			federation.MaxBlockSize)
	}
}

// Bounds of Cache.Pin: each is a walk. And of Cache.Memory. Kubernetes has the same.
const (
	maxPins     = 64
	maxPinPath  = 1024
	maxPinSites = 16

	minMemory federation.Bytes = 1 << 20
)

func validatePins(p *problems, pins []federation.Pin) {
	const field = "spec.cache.pin"
	if len(pins) > maxPins {
		p.add(field, len(pins), "more than %d pins: pin a directory that has them", maxPins)
	}
	for i, pin := range pins {
		at := fmt.Sprintf("%s[%d].", field, i)
		switch _, err := path.Match(pin.Path, ""); {
		case pin.Path == "":
			p.add(at+"path", "", "missing: write a path from the volume's root, such as /reference")
		case pin.Path[0] != '/':
			p.add(at+"path", pin.Path, "not from the volume's root: write it with a slash first")
		case err != nil:
			p.add(at+"path", pin.Path, "not a pattern that can be matched: close its brackets, or put a backslash before them")
		}
		if len(pin.Path) > maxPinPath {
			p.add(at+"path", pin.Path[:32]+"…", "longer than %d bytes: pin a directory above it", maxPinPath)
		}
		if len(pin.Sites) > maxPinSites {
			p.add(at+"sites", len(pin.Sites), "more than %d sites: leave it out for all that have a copy", maxPinSites)
		}
		for j, s := range pin.Sites {
			if federation.CheckLabel("site", s) != nil {
				p.add(fmt.Sprintf("%ssites[%d]", at, j), s, "not a site's name: site names are DNS labels")
			} else if slices.Contains(pin.Sites[:j], s) {
				p.add(fmt.Sprintf("%ssites[%d]", at, j), s, "there twice: name each site once")
			}
		}
	}
}

// maxReadAhead bounds Cache.ReadAhead: each reader has as much in memory.
const maxReadAhead federation.Bytes = 64 << 20

func validateDurability(p *problems, s federation.VolumeSpec) {
	d := s.Durability
	const field = "spec.durability."
	oneOf(p, field+"acknowledge", d.Acknowledge, federation.AcknowledgeGateway, federation.AcknowledgePair, federation.AcknowledgeSites)
	oneOf(p, field+"whenDegraded", d.WhenDegraded, federation.WhenDegradedStall, federation.WhenDegradedContinue)
	switch {
	case d.Acknowledge == federation.AcknowledgePair:
		p.add(field+"acknowledge", d.Acknowledge, "not available yet: a site has one gateway; write Gateway, or Sites to have a second "+
			"fsync elsewhere")
	case d.Acknowledge == federation.AcknowledgeSites && d.Sites < 1:
		p.add(field+"sites", d.Sites, "at least 1, the home's own, has to fsync")
	case d.Acknowledge == federation.AcknowledgeSites && d.Sites > s.Replication.Copies:
		p.add(field+"sites", d.Sites, "more sites than spec.replication.copies (%d) can never fsync a write: lower it, or raise copies",
			s.Replication.Copies)
	case d.Acknowledge == federation.AcknowledgeGateway && d.Sites != 0:
		p.add(field+"sites", d.Sites, "only for acknowledge: Sites: remove it, or write acknowledge: Sites")
	}
	if d.MaxLag.Time < 0 {
		p.add(field+"maxLag.time", d.MaxLag.Time, "negative: write a time span, such as 1m")
	}
	if d.MaxLag.Bytes < 0 {
		p.add(field+"maxLag.bytes", d.MaxLag.Bytes, "negative: write an amount, such as 1Gi")
	}
}

func validateSites(p *problems, s federation.VolumeSpec) {
	r := s.Replication.Sites
	lists := []struct {
		field string
		sites []string
	}{
		{"spec.replication.sites.required", r.Required},
		{"spec.replication.sites.preferred", r.Preferred},
		{"spec.replication.sites.forbidden", r.Forbidden},
		{"spec.replication.sites.blind", r.Blind},
		{"spec.home.preferredSites", s.Home.PreferredSites},
	}
	for _, l := range lists {
		for i, name := range l.sites {
			field := fmt.Sprintf("%s[%d]", l.field, i)
			switch {
			case federation.CheckLabel("site", name) != nil:
				p.add(field, name, "not a site's name: site names are DNS labels")
			case slices.Contains(l.sites[:i], name):
				p.add(field, name, "there twice: name each site once")
			case !strings.HasSuffix(l.field, "forbidden") && slices.Contains(r.Forbidden, name):
				p.add(field, name, "also in spec.replication.sites.forbidden: remove it from one of them")
			case l.field == "spec.home.preferredSites" && slices.Contains(r.Blind, name):
				p.add(field, name, "also in spec.replication.sites.blind: a blind copy is never home; remove it from one of them")
			}
		}
	}
	if n := s.Replication.Copies; n > 0 && len(r.Required) > n {
		p.add("spec.replication.sites.required", strings.Join(r.Required, ", "),
			"more sites than spec.replication.copies (%d): raise copies to %d, or require fewer",
			s.Replication.Copies, len(r.Required))
	}
}

func oneOf[T ~string](p *problems, field string, v T, allowed ...T) {
	if slices.Contains(allowed, v) {
		return
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	p.add(field, string(v), "not one of %s%s", strings.Join(words, ", "), didYouMean(string(v), words))
}

// KeepsAll reports whether a volume has what needs its past whole, without a key of it: blind
// copies or lent stores (ADR 65).
func KeepsAll(r federation.Replication) bool {
	return len(r.Sites.Blind) > 0 || r.OtherOrganizations == federation.CopiesBlind || r.Stores > 0
}
