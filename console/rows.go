// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// row is an object as the API server prints it: text by column. Of a thousand objects rows are a
// tenth of the work, for the API server as for the console.
type row map[string]string

// rows reads all objects of a kind, with these columns besides Name. Who may not see them gets
// none, and is told so.
func (v *visit) rows(kind string, columns ...string) (all []row, forbidden string, err error) {
	text, err := v.s.rest.Get().Resource(kind).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Param("includeObject", string(metav1.IncludeNone)).DoRaw(v.Context())
	switch {
	case apierrors.IsForbidden(err):
		return nil, "You may not see them: " + err.Error() + ".", nil
	case err != nil:
		return nil, "", err
	}
	var t struct {
		ColumnDefinitions []metav1.TableColumnDefinition
		Rows              []struct{ Cells []json.RawMessage }
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, "", fmt.Errorf("list %s: %w", kind, err)
	}
	at := map[string]int{}
	for i, c := range t.ColumnDefinitions {
		at[c.Name] = i
	}
	columns = append([]string{"Name"}, columns...)
	for _, c := range columns {
		if _, ok := at[c]; !ok && len(t.Rows) > 0 {
			return nil, "", fmt.Errorf("list %s: there is no column %s: the definitions of the kinds are older than this console; "+
				"upgrade them", kind, c)
		}
	}
	all = make([]row, len(t.Rows))
	for i, r := range t.Rows {
		all[i] = row{}
		for _, c := range columns {
			cell := r.Cells[at[c]]
			s := ""
			if json.Unmarshal(cell, &s) != nil {
				s = string(cell) // a number
			}
			all[i][c] = s
		}
	}
	return all, "", nil
}

// amount is a quantity; nil: there is none.
func (r row) amount(column string) *resource.Quantity {
	q, err := resource.ParseQuantity(r[column])
	if err != nil {
		return nil
	}
	return &q
}

// counters are what a side counted; nil: nothing yet.
func (r row) counters(column string) (*v1alpha1.UsageCounters, error) {
	if r[column] == "" {
		return nil, nil
	}
	c := &v1alpha1.UsageCounters{}
	if err := json.Unmarshal([]byte(r[column]), c); err != nil {
		return nil, fmt.Errorf("usage of %s, %s: %w", r["Name"], column, err)
	}
	return c, nil
}
