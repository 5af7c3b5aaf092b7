// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// Options configure the operator.
type Options struct {
	// Federation, Organization and Site say who this cluster is. Organization and Site are also in
	// the certificate that the registry knows it by.
	Federation, Organization, Site string
	// Registry is the operator's connection. It stays the caller's, who closes it.
	Registry federation.Registry
	// By is the URI of the operator's certificate, which is in what it says to other organizations.
	By string
	// LentStore is the URL of this site's store for others (`weir store`); empty: it has none.
	LentStore string
	// Signed returns why a paper of the exchange is not what its organization signed; nil: nothing
	// is signed.
	Signed func(name string, value []byte) error
	// Charter takes charters that the registry has, and says whom the one in force does not allow;
	// nil: there are none.
	Charter Charter
	// AskPool asks a gateway of this site how its pool of that name is. It ends within some
	// seconds. An error that is ErrSilent is logged. The text of another is shown, and is to be the
	// same each time while the reason is.
	AskPool func(ctx context.Context, s federation.Site, g federation.Gateway, pool string) (plan.Pool, error)
	// Random is where data keys come from.
	Random io.Reader
	// Now is the clock.
	Now func() time.Time
	// After is a timer, as time.After is.
	After func(time.Duration) <-chan time.Time
	// Workers is how many volumes are worked on at a time; 0: 8.
	Workers int
	// Rollout is how many volumes may be taking up an edited policy at a time; 0: 4.
	Rollout int
	// Ping is how often the registry is asked whether it is there, for the status of the local
	// Site; 0: 10 s.
	Ping time.Duration
	// Trash is how long this cluster's deleted volumes stay before they are purged; 0: a week.
	Trash time.Duration
}

// Charter is what the operator asks of its credentials (pki.Credentials).
type Charter interface {
	// Adopt takes a signed charter, if it is newer than the one in force.
	Adopt(signed string) (news bool, err error)
	// Expelled reports whether an organization is not of the federation any more.
	Expelled(organization string) bool
	// Labels returns which of a site's labels count, and those that the charter says of it.
	Labels(site string, own map[string]string) map[string]string
}

func (o *Options) check() error {
	var problems []error
	for name, v := range map[string]string{"Federation": o.Federation, "Organization": o.Organization} {
		if v == "" {
			problems = append(problems, fmt.Errorf("controllers: option %s is empty: give it, as in the cluster's certificate", name))
		}
	}
	if u, err := url.Parse(o.LentStore); o.LentStore != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		problems = append(problems, fmt.Errorf("controllers: option LentStore is %q: give a URL such as https://store.example.org:7005",
			o.LentStore))
	}
	if err := federation.CheckLabel("site", o.Site); err != nil {
		problems = append(problems, fmt.Errorf("controllers: option Site: %w", err))
	}
	if o.Registry == nil || o.AskPool == nil || o.Random == nil || o.Now == nil || o.After == nil {
		problems = append(problems, errors.New("controllers: option Registry, AskPool, Random, Now or After is missing: give all five"))
	}
	for _, d := range []struct {
		field *int
		v     int
	}{{&o.Workers, 8}, {&o.Rollout, 4}} {
		if *d.field <= 0 {
			*d.field = d.v
		}
	}
	if o.Ping <= 0 {
		o.Ping = 10 * time.Second
	}
	if o.Trash < 0 {
		problems = append(problems, fmt.Errorf("controllers: option Trash is %v: give how long deleted volumes stay, as 168h", o.Trash))
	}
	o.Trash = cmp.Or(o.Trash, federation.TrashTime)
	return errors.Join(problems...)
}
