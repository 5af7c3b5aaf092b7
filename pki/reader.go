// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"time"
)

// Reader makes the credentials of nobody: they check what others signed, and sign nothing
// themselves. It takes certificates of the federation's authorities (PEM). An empty federation is
// the one that the founding authority names. The caller adopts a charter; without one, the
// authorities vouch for everybody. Errors wrap ErrInvalid.
func Reader(authorities []byte, federation string, clock func() time.Time) (*Credentials, error) {
	fail := func(format string, a ...any) (*Credentials, error) {
		return nil, fmt.Errorf("read authorities: %w: %s", ErrInvalid, fmt.Sprintf(format, a...))
	}
	r, err := parseRoots(authorities)
	if err != nil {
		return fail("%v: give the file ca.crt of the federation", err)
	}
	for _, f := range r.founders {
		of := ofAuthority(f)
		if federation == "" {
			federation = of.Federation
		}
		if of.Federation != "" && of.Federation != federation {
			return fail("among them is that of %s, and not of federation %s: take it out", of, federation)
		}
	}
	switch {
	case len(r.founders) == 0:
		return fail("the founding one is not among them: give the file ca.crt of the federation, and not that of an organization alone")
	case !labelForm.MatchString(federation):
		return fail("federation is %q: give its name", federation)
	}
	c := &Credentials{self: Identity{Federation: federation}, clock: clock}
	c.set.Store(&set{roots: r})
	return c, nil
}
