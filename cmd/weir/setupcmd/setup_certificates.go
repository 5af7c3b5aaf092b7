// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/controllers/certificates"
)

// certificates reads what --issue asks for.
func (s *setup) certificates() ([]certificates.Wanted, error) {
	var out []certificates.Wanted
	for _, text := range s.issue {
		w, err := certificates.ParseWanted(text)
		if err != nil {
			return nil, cli.Usage("setup: %w", err)
		}
		out = append(out, w)
	}
	if len(out) > 0 && s.authority == "" {
		return nil, cli.Usage("setup: --issue without --authority: name the Secret of the authority")
	}
	return out, nil
}

func (s *setup) secrets() *certificates.Secrets {
	return &certificates.Secrets{Reader: s.client, Client: s.client, Namespace: s.namespace, Tell: s.tell}
}

func (s *setup) issuer() *certificates.Issuer {
	return &certificates.Issuer{Secrets: *s.secrets(), Federation: s.federation, Organization: s.organization, Site: s.site,
		Authority: s.authority, ValidFor: s.validFor, Now: s.now}
}
