// SPDX-License-Identifier: Apache-2.0

package pkicmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
	"github.com/weir-storage/weir/cmd/weir/internal/machine"
	"github.com/weir-storage/weir/pki"
)

// bundleValues are the values of the chart that `weir pki bundle` writes.
type bundleValues struct {
	Certificates struct {
		Mode     string         `json:"mode"`
		Provided providedValues `json:"provided"`
	} `json:"certificates"`
}

// providedValues are certificates.provided; charts/weir/values.yaml describes them.
type providedValues struct {
	IssuedFor     issuedFor  `json:"issuedFor"`
	CA            string     `json:"ca"`
	Gateway       pairValues `json:"gateway"`
	Operator      pairValues `json:"operator"`
	CSIController pairValues `json:"csiController"`
	CSINode       pairValues `json:"csiNode"`
	// Lending is of the store for others, if the site has one.
	Lending *pairValues `json:"lending,omitempty"`
}

// issuedFor lets the chart refuse another site's certificates. The chart cannot read them.
type issuedFor struct {
	Federation   string `json:"federation"`
	Organization string `json:"organization"`
	Site         string `json:"site"`
	Gateway      string `json:"gateway"`
}

type pairValues struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// bundle is what `weir pki bundle` was asked for.
type bundle struct {
	dir, ca, out string
	namespace    string
	of           issuedFor
	hosts        []string
	lent         []string // hosts of the store for others; none: there is none
	valid        time.Duration
}

// Bounds of the chart: it makes the names of a site's parts from the site's name, and they are DNS
// labels.
const (
	longestSite         = 48
	longestOrganization = 63
)

func bundleCommand(sh *cli.Shell) *cobra.Command {
	var b bundle
	c := &cobra.Command{
		Use:   "bundle --dir D --organization O --site S --host H... --out FILE",
		Short: "Issue all certificates of a Kubernetes site, as one file of values for the chart", Args: cli.Args(cobra.NoArgs),
		Long: "Issues, with the authority in folder D, the certificates of a site's gateway, operator and CSI\n" +
			"driver. Writes them with their keys and the authority's certificate into one file, to install the\n" +
			"chart with:\n" +
			"helm install weir charts/weir -f SITE.yaml -f FILE\n" +
			"Whoever has the file can act as the site: hand it over by a way that keeps it secret.",
		Example: "  weir pki bundle --dir authority --organization SURF --site ams --host 203.0.113.20 \\\n" +
			"    --out certificates.yaml",
		RunE: func(*cobra.Command, []string) error { return writeBundle(sh, b) },
	}
	f := c.Flags()
	f.StringVar(&b.dir, "dir", ".", "`FOLDER` with the authority's files")
	f.StringVar(&b.ca, "ca", "", "`FILE` with what the site trusts, if it is not the ca.crt in D alone: "+
		"two authorities, while one takes over from the other")
	f.StringVar(&b.of.Organization, "organization", "", "`NAME` of the institution, as in the site's values")
	f.StringVar(&b.of.Site, "site", "", "`NAME` of the site, as in the site's values")
	f.StringVar(&b.of.Gateway, "gateway", "", "`NAME` of the gateway, if it is not SITE-0: gateway.name of the site's values")
	f.StringSliceVar(&b.hosts, "host", nil,
		"IP `ADDRESS` or DNS name at which other sites reach the gateway (gateway.address); may be repeated")
	f.StringSliceVar(&b.lent, "store-host", nil,
		"IP `ADDRESS` or DNS name at which guests reach the site's store for others (lending.address), if it has one")
	f.StringVar(&b.namespace, "namespace", "weir-system", "`NAMESPACE` of the chart's release, for the names at which metrics are read")
	f.StringVar(&b.out, "out", "", "`FILE` to write, such as certificates.yaml; it is never replaced")
	f.DurationVar(&b.valid, "valid-for", CertificateTime, "`TIME` until the certificates expire, at most the authority's")
	return c
}

func (b *bundle) check() error {
	for _, f := range []struct {
		flag, value, remedy string
	}{
		{"--organization", b.of.Organization, "name the institution that runs the site"},
		{"--site", b.of.Site, "name the site"},
		{"--namespace", b.namespace, "name the namespace that the chart is installed in"},
		{"--out", b.out, "name the file to write, such as certificates.yaml"},
	} {
		if f.value == "" {
			return cli.Usage("pki bundle: no %s: %s", f.flag, f.remedy)
		}
	}
	if len(b.of.Site) > longestSite {
		return cli.Usage("pki bundle: --site %q: it has %d characters: choose a name of at most %d, "+
			"which the names of the site's parts begin with",
			b.of.Site, len(b.of.Site), longestSite)
	}
	if n := len([]rune(b.of.Organization)); n > longestOrganization {
		return cli.Usage("pki bundle: --organization %q: it has %d characters: shorten it to at most %d",
			b.of.Organization, n, longestOrganization)
	}
	if b.valid <= 0 {
		return cli.Usage("pki bundle: --valid-for %v: give a positive time, such as 8760h", b.valid)
	}
	if len(b.hosts) == 0 {
		return cli.Usage("pki bundle: no --host: give the address at which other sites reach the gateway " +
			"(gateway.address of the site's values)")
	}
	if b.of.Gateway == "" {
		b.of.Gateway = b.of.Site + "-0"
	}
	if parts := b.parts(); slices.Contains(parts[1:], b.of.Gateway) {
		return cli.Usage("pki bundle: --gateway %q: another part of the site has that name: choose one that is none of %q",
			b.of.Gateway, parts[1:])
	}
	return nil
}

// components are the chart's names of what parts returns.
var components = [...]string{"gateway", "operator", "csi-controller", "csi-node"}

// parts are the names of the site's parts in the chart's templates: gateway, operator, CSI
// controller, CSI node plugin.
func (b *bundle) parts() []string {
	return []string{b.of.Gateway, b.of.Site + "-operator", b.of.Site + "-csi-controller", b.of.Site + "-csi-node"}
}

// issue makes all certificates.
func (b *bundle) issue(a *pki.Authority, ca []byte, now time.Time) (bundleValues, error) {
	var v bundleValues
	b.of.Federation = a.Federation()
	v.Certificates.Mode = "provided"
	p := &v.Certificates.Provided
	p.IssuedFor, p.CA = b.of, string(ca)
	for i, to := range []*pairValues{&p.Gateway, &p.Operator, &p.CSIController, &p.CSINode} {
		hosts := []string{fmt.Sprintf("weir-%s-metrics.%s.svc", components[i], b.namespace)}
		if i == 0 { // nobody but Prometheus calls the other parts
			hosts = append(hosts, b.hosts...)
		}
		id := pki.Identity{Federation: b.of.Federation, Organization: b.of.Organization, Site: b.of.Site, Gateway: b.parts()[i],
			Part: pki.Part(components[i])}
		pair, err := a.Issue(id, hosts, now, b.valid)
		if err != nil {
			return v, err
		}
		*to = pairValues{string(pair.Cert), string(pair.Key)}
	}
	if len(b.lent) > 0 {
		pair, err := a.Issue(pki.Identity{Federation: b.of.Federation, Organization: b.of.Organization, Site: b.of.Site,
			Gateway: b.of.Site + "-store", Part: pki.PartStore},
			append([]string{fmt.Sprintf("weir-lending-metrics.%s.svc", b.namespace)}, b.lent...), now, b.valid)
		if err != nil {
			return v, err
		}
		p.Lending = &pairValues{string(pair.Cert), string(pair.Key)}
	}
	return v, nil
}

func writeBundle(sh *cli.Shell, b bundle) error {
	if err := b.check(); err != nil {
		return err
	}
	a, err := pki.ReadAuthority(b.dir, authorityName)
	if err != nil {
		return fmt.Errorf("%w: make one with `weir pki init --dir %s --federation NAME`, or put the federation's ca.crt and ca.key there",
			err, b.dir)
	}
	if b.ca == "" {
		b.ca = filepath.Join(b.dir, authorityName+".crt")
	}
	ca, err := os.ReadFile(b.ca)
	if err != nil {
		return fmt.Errorf("--ca %q: %w: give a file with the certificate of the authority", b.ca, err)
	}
	v, err := b.issue(a, ca, sh.Now())
	if err != nil {
		return err
	}
	first := v.Certificates.Provided.Gateway
	if _, err := pki.Load(ca, pki.Pair{Cert: []byte(first.Cert), Key: []byte(first.Key)}, sh.Now); err != nil {
		return fmt.Errorf("--ca %q: it does not go with the authority in %s: %w", b.ca, b.dir, err)
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	head := fmt.Sprintf("# Certificates and keys of site %s (%s) in federation %s: keep this file secret.\n"+
		"# helm install weir charts/weir --namespace weir-system -f %s.yaml -f %s\n",
		b.of.Site, b.of.Organization, b.of.Federation, b.of.Site, filepath.Base(b.out))
	err = machine.WriteFile(b.out, append([]byte(head), text...), true)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--out %q: there is such a file, and it may be in use: choose another name, or remove it", b.out)
	case err != nil:
		return fmt.Errorf("--out %q: %w: give a path in a folder that you can write", b.out, err)
	}
	return sh.Say("%s\n", b.out)
}
