// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// LocalCache returns what an import says of the cache at its own site; nil: nothing. Its fields
// that are not given are the owner's. The error is a *Verdict.
func LocalCache(s v1alpha1.GeoVolumeSpec) (*federation.Cache, error) {
	if s.Import == nil || s.Cache == nil {
		return nil, nil
	}
	r, err := Resolve(resource.MustParse("1Gi"), nil, &v1alpha1.VolumePolicySpec{Cache: *s.Cache})
	if err != nil {
		return nil, err
	}
	c := r.Spec.Cache
	c.BlockSize, c.Compression = 0, "" // of what is written, so the owner's
	return &c, nil
}
