// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// TestLocalCache: each field of an import's cache is in force at its site, instead of the owner's,
// but those of what is written. What the registry keeps of it is what was written there.
func TestLocalCache(t *testing.T) {
	values := map[string]string{"size": "2Gi", "reserve": "1Mi", "memory": "2Mi", "arc": "None", "l2arc": "Metadata", "log": "Throughput",
		"readAhead": "0", "prefetch": "Pattern", "blockSize": "8Ki", "compression": "Strong",
		"pool": "{matchLabels: {tier: nvme}}",
		"pin":  "[{path: /a, sites: [x]}, {path: '/b/**'}]"}
	owners := policyOf(t, "{cache: {pool: {matchLabels: {tier: hdd}}, "+
		"size: 9Gi, reserve: 3Mi, memory: 4Mi, arc: All, l2arc: All, log: Latency, readAhead: 1Mi, "+
		"blockSize: 4Ki, compression: None, pin: [{path: /c}]}}")
	is, err := Resolve(resource.MustParse("1Gi"), nil, owners)
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[v1alpha1.Cache]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := policyOf(t, "{cache: {"+name+": "+values[name]+"}}")
		local, err := LocalCache(v1alpha1.GeoVolumeSpec{Import: &v1alpha1.Import{}, Cache: &p.Cache})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		there := is.Spec.Cache.With(local, "x")
		differ := 0
		for field, now := range reflect.ValueOf(there).Fields() {
			was := reflect.ValueOf(is.Spec.Cache).FieldByIndex(field.Index)
			if !reflect.DeepEqual(was.Interface(), now.Interface()) {
				differ++
			}
		}
		want := 1
		if name == "blockSize" || name == "compression" {
			want = 0
		}
		if differ != want {
			t.Errorf("%s: %d fields differ, not %d", name, differ, want)
		}
		kept := new(federation.Cache)
		text, err := json.Marshal(local)
		if err == nil {
			err = json.Unmarshal(text, kept)
		}
		if err != nil || !reflect.DeepEqual(kept, local) {
			t.Errorf("%s: %+v is kept as %+v, %v", name, local, kept, err)
		}
	}
	for _, s := range []v1alpha1.GeoVolumeSpec{{Import: &v1alpha1.Import{}}, {Cache: &owners.Cache}, {}} {
		if local, err := LocalCache(s); local != nil || err != nil {
			t.Errorf("%+v says %+v, %v", s, local, err)
		}
	}
	bad := policyOf(t, "{cache: {size: 1Mi, reserve: 2Mi}}")
	_, err = LocalCache(v1alpha1.GeoVolumeSpec{Import: &v1alpha1.Import{}, Cache: &bad.Cache})
	if v := (*Verdict)(nil); !errors.As(err, &v) || !strings.Contains(v.Message, "reserve") {
		t.Errorf("a reserve above the size: %v", err)
	}
	small := (&federation.Cache{Size: 10, Reserve: 9}).With(&federation.Cache{Size: 5}, "x")
	if small.Reserve != 5 {
		t.Errorf("the owner's reserve is %d of a local size of 5", small.Reserve)
	}
}
