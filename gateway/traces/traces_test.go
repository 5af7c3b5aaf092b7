// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLostTracesAreSaidSeldom: without a collector the log says once a minute what is lost.
func TestLostTracesAreSaidSeldom(t *testing.T) {
	var said strings.Builder
	now := time.Unix(1000, 0)
	l := &errorLog{cfg: Config{Endpoint: "http://collector:4317", Log: slog.New(slog.NewTextHandler(&said, nil)),
		Now: func() time.Time { return now }}}
	for range 90 {
		l.Handle(errors.New("connection refused"))
		now = now.Add(time.Second)
	}
	if n := strings.Count(said.String(), "traces are lost"); n != 2 || !strings.Contains(said.String(), "http://collector:4317") {
		t.Errorf("%d lines in 90 s:\n%s", n, said.String())
	}
}

// TestOpenDoesNotWait: a gateway starts without its collector.
func TestOpenDoesNotWait(t *testing.T) {
	tr, err := Open(t.Context(), Config{Endpoint: "http://127.0.0.1:1", Share: 1, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil { // nobody has to listen there
		t.Fatal(err)
	}
	if tr.Client() == nil || tr.Server() == nil {
		t.Error("calls between gateways are not followed")
	}
}
