// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/cmd/weir/internal/clitest"
	"github.com/weir-storage/weir/cmd/weir/statuscmd"
	"github.com/weir-storage/weir/pki"
)

// A gateway shows the certificate that is in its file, without a restart. It refuses the
// certificate of another gateway, and logs that.
func TestGatewayRenewal(t *testing.T) {
	r := newTrial(t)
	r.configure("ams-1", "ams")
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- r.weir(ctx, &log, new(bytes.Buffer), []string{"gateway", "--config", r.path("ams-1.yaml")})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	report := r.await("ams-1", "the gateway is alive", func(p statuscmd.Report) bool {
		return len(p.Gateways) == 1 &&
			p.Gateways[0].Answered
	})
	person, err := pki.LoadFiles(pki.Files{CA: r.path("ca.crt"), Cert: r.path("registry-1.crt"), Key: r.path("registry-1.key")}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	cfg := person.Client(pki.Expect{Site: "ams", Gateway: "ams-1"})
	cfg.NextProtos = []string{"h2"}
	shown := func() ([]byte, error) {
		c, err := tls.Dial("tcp", report.Gateways[0].Addr, cfg)
		if err != nil {
			return nil, err
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].Raw, nil
	}
	first, err := shown()
	if err != nil {
		t.Fatal(err)
	}
	clitest.Put(t, r.path("ams-1.crt"), clitest.Read(t, r.path("registry-1.crt")))
	clitest.Put(t, r.path("ams-1.key"), clitest.Read(t, r.path("registry-1.key")))
	clitest.Eventually(t, "it refuses another's certificate", func() error {
		if now, err := shown(); err != nil || !bytes.Equal(now, first) {
			t.Fatalf("it shows another certificate, or none: %v", err)
		}
		if !strings.Contains(log.String(), "put its own certificate there") {
			return fmt.Errorf("it says %s", log.String())
		}
		return nil
	})
	again := filepath.Join(r.dir, "again")
	for _, name := range []string{"ca.crt", "ca.key"} {
		if err := os.MkdirAll(again, 0o700); err != nil {
			t.Fatal(err)
		}
		clitest.Put(t, filepath.Join(again, name), clitest.Read(t, r.path(name)))
	}
	r.must("", "pki", "issue", "--dir", again, "--organization", "SURF", "--site", "ams", "--gateway", "ams-1", "--host", "127.0.0.1")
	clitest.Put(t, r.path("ams-1.crt"), clitest.Read(t, filepath.Join(again, "ams-1.crt")))
	clitest.Put(t, r.path("ams-1.key"), clitest.Read(t, filepath.Join(again, "ams-1.key")))
	clitest.Eventually(t, "it shows the new certificate", func() error {
		now, err := shown()
		if err == nil && bytes.Equal(now, first) {
			err = fmt.Errorf("it shows the first")
		}
		return err
	})
	if text := log.String(); !strings.Contains(text, "changed certificate files are in force") {
		t.Errorf("it says %s", text)
	}
}
