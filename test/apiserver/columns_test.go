// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestKindOfRoomIsAColumn: `kubectl get` shows of which kind room is, wherever it is about some.
func TestKindOfRoomIsAColumn(t *testing.T) {
	cfg := Start(t)
	cfg.APIPath, cfg.GroupVersion = "/apis", &schema.GroupVersion{Group: "storage.weir.dev", Version: "v1alpha1"}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"storageoffers", "storageagreements", "storageusages"} {
		text, err := c.Get().Resource(kind).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var list metav1.Table
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list.ColumnDefinitions, func(d metav1.TableColumnDefinition) bool {
			return d.Name == "Kind" && d.Priority == 0
		}) {
			t.Errorf("%s: columns are %+v, without Kind", kind, list.ColumnDefinitions)
		}
	}
}
