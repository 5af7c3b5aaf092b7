// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestReadersAreBounded: while what is measured hangs, those who read metrics are few, however
// often they ask.
func TestReadersAreBounded(t *testing.T) {
	hangs, well := make(chan struct{}), make(chan struct{})
	h := Metrics{From: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		hangs <- struct{}{}
		<-well
		return nil, nil
	})}.handler()
	read := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
		return w.Code
	}
	done := make(chan int)
	for range metricsReaders {
		go func() { done <- read(t.Context()) }()
		<-hangs
	}
	if got := read(t.Context()); got != http.StatusServiceUnavailable {
		t.Errorf("one more reader is answered %d", got)
	}
	close(well)
	for range metricsReaders {
		if got := <-done; got != http.StatusOK {
			t.Errorf("a reader is answered %d when the disk is well", got)
		}
	}
}
