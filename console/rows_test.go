// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// printed is a list as the API server prints it, by the columns of the kind's definition.
func printed(kind string, list any) (t metav1.Table) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	text, err := os.ReadFile("../config/crd/storage.weir.dev_" + kind + ".yaml")
	must(err)
	var d apiextensionsv1.CustomResourceDefinition
	must(yaml.Unmarshal(text, &d))
	text, err = json.Marshal(list)
	must(err)
	var all struct{ Items []map[string]any }
	must(json.Unmarshal(text, &all))
	t.TypeMeta = metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}
	columns := append([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "Name", JSONPath: ".metadata.name"}},
		d.Spec.Versions[0].AdditionalPrinterColumns...)
	for _, c := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.Name})
	}
	for _, item := range all.Items {
		var cells []any
		for _, c := range columns {
			j, b := jsonpath.New(c.Name).AllowMissingKeys(true), new(bytes.Buffer)
			must(j.Parse("{" + c.JSONPath + "}"))
			must(j.Execute(b, item))
			if b.Len() == 0 {
				cells = append(cells, nil)
			} else {
				cells = append(cells, b.String())
			}
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}

// TestOldDefinitions: where the kinds have no such columns yet, a page says so, and no accounts say
// that nothing was used.
func TestOldDefinitions(t *testing.T) {
	c, s, _ := before(t)
	in := signIn(t, c)
	u := v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	s.objects[kindsPath+"storageusages"] = v1alpha1.StorageUsageList{Items: []v1alpha1.StorageUsage{u}}
	s.without = "ByHost"
	for _, at := range []string{"/usage", "/usage.csv"} {
		w := asks(t, c, "GET", at, "", in)
		if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "there is no column ByHost") ||
			w.Header().Get("Content-Disposition") != "" {
			t.Errorf("%s: %d: %s", at, w.Code, w.Body)
		}
	}
}

// TestBrief: a list has the beginning of what somebody wrote, and its own page all of it.
func TestBrief(t *testing.T) {
	c, s, _ := before(t)
	in := signIn(t, c)
	long := strings.Repeat("ö", longest+1)
	o := v1alpha1.StorageOffer{TypeMeta: metav1.TypeMeta{Kind: "StorageOffer", APIVersion: v1alpha1.GroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: "ams.x"}, Spec: v1alpha1.StorageOfferSpec{Price: long},
		Status: v1alpha1.StorageOfferStatus{Host: "SURF"}}
	s.objects[kindsPath+"storageoffers/ams.x"] = o
	s.objects[kindsPath+"storageoffers"] = v1alpha1.StorageOfferList{Items: []v1alpha1.StorageOffer{o}}
	if text := asks(t, c, "GET", "/offers", "", in).Body.String(); strings.Contains(text, long) ||
		!strings.Contains(text, strings.Repeat("ö", longest-1)+"…") {
		t.Errorf("the list has %s", text)
	}
	if text := asks(t, c, "GET", "/offers/ams.x", "", in).Body.String(); !strings.Contains(text, long) {
		t.Errorf("the offer's page has %s", text)
	}
}

// TestManyLines: a map has what is not well, and tells how much it leaves out.
func TestManyLines(t *testing.T) {
	var sites []v1alpha1.Site
	var volumes []v1alpha1.GeoVolumeContent
	for i := range 20 {
		sites = append(sites, *crowdSite(i))
		for j := range i {
			v := v1alpha1.GeoVolumeContent{}
			v.Status.Home.Site = siteName(i)
			v.Status.Replicas = []v1alpha1.Replica{{Site: v1alpha1.SiteName(siteName(j)), State: "Follower"}}
			if i == 19 && j == 18 {
				v.Status.Replicas[0].State = "Failing"
			}
			volumes = append(volumes, v)
		}
	}
	d := drawMap(sites, volumes)
	if len(d.Lines) != mostLines || d.Left != 190-mostLines || d.Lines[mostLines-1].Tone != "bad" {
		t.Errorf("%d lines and %d left out, the last %+v", len(d.Lines), d.Left, d.Lines[len(d.Lines)-1])
	}
}
