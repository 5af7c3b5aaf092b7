// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// Authorities are those of a federation: the founding one, and one of each organization. Their
// methods may be called from several goroutines.
type Authorities struct {
	federation, dir string
	founding        *pki.Authority
	admin           stage.TLS

	mu  sync.Mutex
	own map[string]*pki.Authority // by organization
}

// Certificates are good for a while before now: clocks differ between test machines.
const (
	since = time.Hour
	valid = 240 * time.Hour
)

// foundingName is the folder of the founding authority, and the organization of its administrator.
const foundingName = "founders"

// NewAuthorities makes a federation's founding authority in a folder.
func NewAuthorities(federation, dir string) (*Authorities, error) {
	a := &Authorities{federation: federation, dir: dir, own: map[string]*pki.Authority{}}
	var err error
	if a.founding, err = pki.NewAuthority(federation, time.Now().Add(-since), valid); err != nil {
		return nil, err
	}
	p, err := a.founding.Pair()
	if err != nil {
		return nil, err
	}
	if _, _, err := p.Write(filepath.Join(dir, foundingName), "ca"); err != nil {
		return nil, err
	}
	a.admin, err = a.Issue(foundingName, foundingName, pki.PartAdministrator, "administrator")
	return a, err
}

// Former is the file of the authority that an organization had before NewAuthority.
func (a *Authorities) Former(organization string) string {
	return filepath.Join(a.dir, organization, "old.crt")
}

// Trust is the file of the authorities that an organization trusts: its own, if it has one, and the
// founding one.
func (a *Authorities) Trust(organization string) string {
	return filepath.Join(a.dir, organization, "ca.crt")
}

// NewAuthority makes an organization's authority, which takes the place of the one it had. It
// vouches for nobody before Admit.
func (a *Authorities) NewAuthority(organization string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newAuthority(organization)
}

func (a *Authorities) newAuthority(organization string) error {
	o, err := pki.NewOrganizationAuthority(a.federation, organization, time.Now().Add(-since), valid)
	if err != nil {
		return err
	}
	p, err := o.Pair()
	if err != nil {
		return err
	}
	dir, known := filepath.Join(a.dir, organization), a.Trust(foundingName)
	if a.own[organization] != nil {
		known = a.Trust(organization) // the one before it too, until all have new certificates
	}
	also, err := os.ReadFile(known)
	if err != nil {
		return err
	}
	p.Cert = append(p.Cert, also...)
	if a.own[organization] != nil { // gateways follow the file
		if err := errors.Join(os.Rename(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "old.crt")),
			os.Rename(filepath.Join(dir, "ca.key"), filepath.Join(dir, "old.key"))); err != nil {
			return err
		}
	}
	a.own[organization] = o
	_, _, err = p.Write(dir, "ca")
	return err
}

// Issue makes a certificate and returns its files. It replaces one that was issued before:
// processes follow their files.
func (a *Authorities) Issue(organization, site string, part pki.Part, name string, hosts ...string) (stage.TLS, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by, trust := a.founding, a.Trust(foundingName)
	if part != pki.PartRegistry && part != pki.PartAdministrator {
		if a.own[organization] == nil {
			if err := a.newAuthority(organization); err != nil {
				return stage.TLS{}, err
			}
		}
		by, trust = a.own[organization], a.Trust(organization)
	}
	pair, err := by.Issue(pki.Identity{Federation: a.federation, Organization: organization, Site: site, Gateway: name, Part: part}, hosts,
		time.Now().Add(-since), valid)
	if err != nil {
		return stage.TLS{}, err
	}
	files := stage.TLS{CA: trust, Cert: filepath.Join(a.dir, organization, name+".crt"), Key: filepath.Join(a.dir, organization,
		name+".key")}
	for _, old := range []string{files.Cert, files.Key} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return stage.TLS{}, err
		}
	}
	_, _, err = pair.Write(filepath.Join(a.dir, organization), name)
	return files, err
}

// Program makes a command of the weir program at a site.
type Program func(ctx context.Context, args ...string) *exec.Cmd

// At runs the program at a site.
func At(site *stage.Site, program string) Program {
	return func(ctx context.Context, args ...string) *exec.Cmd { return site.Command(ctx, program, args...) }
}

// Change runs `weir federation` as an administrator who has the founding authority.
func (a *Authorities) Change(ctx context.Context, weir Program, registry string, args ...string) error {
	cmd := weir(ctx, append(append([]string{"federation"}, args...), "--dir", filepath.Join(a.dir, foundingName))...)
	cmd.Env = append(cmd.Environ(), "WEIR_REGISTRY="+registry, "WEIR_CA="+a.admin.CA, "WEIR_CERT="+a.admin.Cert, "WEIR_KEY="+a.admin.Key)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("weir federation %v: %w: %s", args, err, out)
	}
	return nil
}

// Admit lets organizations' authorities vouch for them. It waits for the registry.
func (a *Authorities) Admit(ctx context.Context, weir Program, registry string, organizations ...string) error {
	for _, o := range organizations {
		for {
			err := a.Change(ctx, weir, registry, "admit", o, "--authority", a.Trust(o))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}
