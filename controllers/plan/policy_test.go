// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

func policyOf(t *testing.T, text string) *v1alpha1.VolumePolicySpec {
	t.Helper()
	if text == "" {
		return nil
	}
	p := &v1alpha1.VolumePolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		name, policy, overrides string
		want                    func(*federation.VolumeSpec)
		wrong                   string
	}{
		{name: "defaults", want: func(*federation.VolumeSpec) {}},
		{name: "the policy over the defaults", policy: "{replication: {copies: 3, spread: Region}, durability: {acknowledge: Sites}}",
			want: func(s *federation.VolumeSpec) {
				s.Replication.Copies, s.Replication.Spread = 3, federation.SpreadRegion
				s.Durability.Acknowledge, s.Durability.Sites = federation.AcknowledgeSites, 2
			}},
		{name: "the GeoVolume over the policy, field by field",
			policy:    "{replication: {copies: 3, spread: Region}, cache: {size: 1Gi, reserve: 1Mi}}",
			overrides: "{replication: {copies: 4}, cache: {reserve: 2Mi}}", want: func(s *federation.VolumeSpec) {
				s.Replication.Copies, s.Replication.Spread = 4, federation.SpreadRegion
				s.Cache = federation.Cache{Size: 1 << 30, Reserve: 2 << 20}
			}},
		{name: "lists replace lists", policy: "{replication: {sites: {required: [a], preferred: [b]}}}",
			overrides: "{replication: {sites: {required: [c]}}}", want: func(s *federation.VolumeSpec) {
				s.Replication.Sites.Required, s.Replication.Sites.Preferred = []string{"c"}, []string{"b"}
			}},
		{name: "what belongs to another acknowledge goes with it", policy: "{durability: {acknowledge: Sites, sites: 2}}",
			overrides: "{durability: {acknowledge: Gateway}}", want: func(*federation.VolumeSpec) {}},
		{name: "what belongs to another mode goes with it", policy: "{consistency: {mode: Bounded, maxStaleness: 9s}}",
			overrides: "{consistency: {mode: Strong}}", want: func(*federation.VolumeSpec) {}},
		{name: "Bounded has its default",
			overrides: "{consistency: {mode: Bounded}, durability: {maxLag: {time: 2m, bytes: 5Mi}}, home: {preferredSites: [x]}}",
			want: func(s *federation.VolumeSpec) {
				s.Consistency = federation.Consistency{Mode: federation.ConsistencyBounded,
					MaxStaleness: federation.Duration(5 * time.Second)}
				s.Durability.MaxLag = federation.MaxLag{Time: federation.Duration(2 * time.Minute), Bytes: 5 << 20}
				s.Home.PreferredSites = []string{"x"}
			}},
		{name: "more sites than copies", policy: "{replication: {copies: 2}, durability: {acknowledge: Sites, sites: 2}}",
			overrides: "{replication: {copies: 1}}", wrong: "spec.durability.sites: 2: more sites than spec.replication.copies (1)"},
		{name: "all that is wrong at once", overrides: "{replication: {copies: -1, spread: Rack}}",
			wrong: `a volume has at least 1 copy; spec.replication.spread: "Rack"`},
		{name: "a selector that is none", overrides: "{replication: {sites: {selector: {matchExpressions: [{key: a, operator: Like}]}}}}",
			wrong: "spec.replication.sites.selector: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy, overrides := policyOf(t, tt.policy), policyOf(t, tt.overrides)
			before := policyOf(t, tt.policy)
			got, err := Resolve(resource.MustParse("10Gi"), policy, overrides)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) || err.(*Verdict).Reason != v1alpha1.ReasonInvalid {
					t.Fatalf("got %v, want %s", err, tt.wrong)
				}
				return
			}
			want := federation.VolumeSpec{Size: 10 << 30}
			want.Replication.Copies, want.Replication.Spread = 2, federation.SpreadSite
			want.Durability = federation.Durability{Acknowledge: federation.AcknowledgeGateway, WhenDegraded: federation.WhenDegradedStall,
				MaxLag: federation.MaxLag{Time: federation.Duration(time.Minute), Bytes: 1 << 30}}
			want.Consistency.Mode = federation.ConsistencyStrong
			tt.want(&want)
			if err != nil || !reflect.DeepEqual(got.Spec, want) {
				t.Fatalf("got %+v, %v\nwant %+v", got.Spec, err, want)
			}
			if !reflect.DeepEqual(policy, before) {
				t.Error("Resolve changed the policy that it was given")
			}
			// A cluster that becomes the owner resolves the description to the same.
			all := Describe(got.Spec)
			again, err := Resolve(resource.MustParse("10Gi"), nil, &all)
			if err != nil || !reflect.DeepEqual(again.Spec, got.Spec) {
				t.Errorf("described and resolved again: %+v, %v", again.Spec, err)
			}
		})
	}
}

// TestEveryFieldCounts: each field of a policy, in a VolumePolicy or in a GeoVolume, changes what
// is in force, and is told by Describe. A field that is new here needs a value below.
func TestEveryFieldCounts(t *testing.T) {
	values := map[string]string{
		"replication.copies": "3", "replication.spread": "Region", "replication.sites.required": "[a]",
		"replication.sites.preferred": "[a]",
		"replication.sites.forbidden": "[a]", "replication.sites.blind": "[a]", "replication.otherOrganizations": "Blind",
		"replication.stores":         "2",
		"replication.sites.selector": "{matchLabels: {a: b}}",
		"durability.acknowledge":     "Sites", "durability.sites": "1", "durability.whenDegraded": "Continue",
		"durability.maxLag.time": "9s", "durability.maxLag.bytes": "5Mi",
		"consistency.mode": "Bounded", "consistency.maxStaleness": "9s",
		"cache.pool": "{matchLabels: {tier: nvme}}",
		"cache.size": "2Gi", "cache.reserve": "1Mi", "cache.memory": "2Mi", "cache.arc": "None", "cache.l2arc": "Metadata",
		"cache.log": "Throughput", "cache.readAhead": "0", "cache.prefetch": "File",
		"cache.blockSize": "8Ki", "cache.compression": "Strong",
		"cache.pin":           "[{path: /a, sites: [x]}, {path: '/b/**'}]",
		"home.preferredSites": "[a]",
		"clients.squash":      "Root", "clients.anonymousUID": "99", "clients.anonymousGID": "98",
		"clients.uids": "[{client: 1, volume: 5}]", "clients.gids": "[{client: 1, volume: 5, count: 3}]",
		"clients.mask": "'077'", "clients.certificates": "Required",
		"snapshots.schedule": "[{every: Hourly, keep: 24}]", "snapshots.window": "1h", "snapshots.directory": "None",
		"trash.keep":             "168h",
		"encryption.rotateEvery": "2160h", "encryption.rotation": "3",
		"encryption.erase": "OnPurge", "encryption.acceptOneSite": "true", "encryption.reseal": "OnRotation",
		"quota.files": "1000", "scrub.every": "24h", "scrub.rate": "50Mi",
		"compaction.rate": "30Mi", "compaction.hours": "22:00-06:00",
	}
	beside := map[string]string{"durability.sites": "durability: {acknowledge: Sites}",
		"consistency.maxStaleness": "consistency: {mode: Bounded}"}
	var walk func(path string, in reflect.Type)
	walk = func(path string, in reflect.Type) {
		for f := range in.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			if f.Type.Kind() == reflect.Struct {
				walk(at, f.Type)
				continue
			}
			value, ok := values[at]
			if !ok {
				t.Errorf("%s has no value here", at)
				continue
			}
			parts := strings.Split(at, ".")
			text := parts[len(parts)-1] + ": " + value
			if more := beside[at]; more != "" {
				_, more, _ = strings.Cut(more, "{")
				text += ", " + strings.TrimSuffix(more, "}")
			}
			for i := len(parts) - 2; i >= 0; i-- {
				text = parts[i] + ": {" + text + "}"
			}
			plain := policyOf(t, "{"+beside[at]+"}")
			without, err := Resolve(resource.MustParse("10Gi"), plain, nil)
			if err != nil {
				t.Fatal(err)
			}
			with := policyOf(t, "{"+text+"}")
			for where, in := range map[string][2]*v1alpha1.VolumePolicySpec{"policy": {with, nil}, "volume": {plain, with}} {
				got, err := Resolve(resource.MustParse("10Gi"), in[0], in[1])
				if err != nil || reflect.DeepEqual(got, without) {
					t.Errorf("{%s} in a %s: %v, and nothing else is in force", text, where, err)
				}
				all := Describe(got.Spec)
				again, err := Resolve(resource.MustParse("10Gi"), nil, &all)
				if err != nil || !reflect.DeepEqual(again.Spec, got.Spec) {
					t.Errorf("{%s}, described and resolved again: %+v, %v", text, again.Spec, err)
				}
			}
		}
	}
	walk("", reflect.TypeFor[v1alpha1.VolumePolicySpec]())
}

func TestSelectorIsTheOverrides(t *testing.T) {
	p := policyOf(t, "{replication: {sites: {selector: {matchLabels: {a: b}}}}}")
	got, err := Resolve(resource.MustParse("1Gi"), p, nil)
	if err != nil || !reflect.DeepEqual(got.Selector, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}) {
		t.Errorf("got %v, %v", got.Selector, err)
	}
}

func TestQuantity(t *testing.T) {
	for b, want := range map[federation.Bytes]string{0: "0", 1 << 30: "1Gi", 1536 << 20: "1536Mi", 5e6: "5M", 12345: "12345"} {
		if got := Quantity(b); got.String() != want || got.Value() != int64(b) {
			t.Errorf("Quantity(%d) = %s, want %s", b, got.String(), want)
		}
	}
}
