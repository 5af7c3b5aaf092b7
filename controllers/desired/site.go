// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// SiteLabels returns the labels that are the site's own. Others belong to installers.
func SiteLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		prefix, _, _ := strings.Cut(k, "/")
		if prefix != "app.kubernetes.io" && prefix != "helm.sh" && !strings.HasSuffix(prefix, ".fluxcd.io") &&
			prefix != "argocd.argoproj.io" {
			out[k] = v
		}
	}
	return out
}

// ObjectLabels returns the labels of a site of the registry that an object may have. A site that is
// no Kubernetes cluster may have others, such as values with blanks: its object must be made all
// the same.
func ObjectLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0 {
			out[k] = v
		}
	}
	return out
}

// Site returns the spec of the object that shows a site of the registry.
func Site(s federation.Site, name string) v1alpha1.SiteSpec {
	spec := v1alpha1.SiteSpec{Organization: s.Organization, Region: s.Region, Federation: name}
	if len(s.Gateways) > 0 {
		spec.Endpoints.Gateway = s.Gateways[0].Addr
	}
	if s.Store != (federation.SiteStore{}) {
		spec.Endpoints.Store = strings.TrimSuffix(s.Store.Endpoint, "/") + "/" + s.Store.Bucket
	}
	return spec
}
