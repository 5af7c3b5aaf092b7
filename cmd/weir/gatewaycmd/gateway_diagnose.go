// SPDX-License-Identifier: Apache-2.0

package gatewaycmd

import (
	"fmt"
	"io"
	"net/url"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/cmd/weir/internal/config"
	"github.com/weir-storage/weir/cmd/weir/internal/process"
	"github.com/weir-storage/weir/gateway"
)

// recentLog is how many bytes of the newest log a support bundle has.
const recentLog = 4 << 20

// hidden replaces a secret.
const hidden = "(hidden)"

// diagnostics are the files of the process for a support bundle.
func diagnostics(c *config.Config, version string, recent *process.Recent, measured prometheus.Gatherer) []gateway.Diagnostic {
	return []gateway.Diagnostic{
		{Name: "version.txt", Write: func(w io.Writer) error {
			_, err := fmt.Fprintln(w, version)
			return err
		}},
		{Name: "config.yaml", Write: func(w io.Writer) error {
			shown := *c
			if shown.Store.SecretKey != "" {
				shown.Store.SecretKey = hidden
			}
			shown.Registry.Endpoints = slices.Clone(c.Registry.Endpoints)
			urls := []*string{&shown.Store.Endpoint, &shown.Tracing.Endpoint}
			for i := range shown.Registry.Endpoints {
				urls = append(urls, &shown.Registry.Endpoints[i])
			}
			for _, at := range urls {
				if u, err := url.Parse(*at); err == nil {
					*at = u.Redacted()
				}
			}
			text, err := yaml.Marshal(shown)
			if err == nil {
				_, err = w.Write(text)
			}
			return err
		}},
		{Name: "log.txt", Write: recent.Print},
		{Name: "metrics.txt", Write: func(w io.Writer) error {
			all, err := measured.Gather()
			if err != nil {
				return err
			}
			to := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
			for _, f := range all {
				if err := to.Encode(f); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}
