// SPDX-License-Identifier: Apache-2.0

// Package installed sets up a federation of clusters with Weir installed by its chart, as
// institutions would do it. Each site has a member of the registry and an S3 store of its own,
// outside Kubernetes, and in its cluster everything that the packaged chart of a release installs.
// Nodes pull Weir's image, and the others that the chart names, from the stage's registry. The
// guest nodes have a kernel with an NFS client; pods with volumes run there.
//
// An organization's name is "org-" and its site's name, unless the Config names another. The
// federation is "demo". The tests hold the certificate authorities.
package installed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/test/e2e/bed"
	"github.com/weir-storage/weir/test/e2e/kube"
	"github.com/weir-storage/weir/test/e2e/stage"
)

// Federation is its name.
const Federation = "demo"

// Namespace is that of Weir's own pods.
const Namespace = "weir-system"

const (
	accessKey = "weir-demo"
	secretKey = "weir-demo-secret"
	poolDir   = "/var/lib/weir"       // of the host node: see package kube
	plainDir  = "/var/lib/weir-plain" // the second pool of a site with ZFS
	lentDir   = "/var/lib/weir-lent"  // what a store for others counted
	lentPort  = 30705                 // of the node, for that store
)

// Config says what is installed; the zero value is each site for itself, lending to all.
type Config struct {
	Organizations map[string]string   // of sites; others have their own
	Members       []string            // sites with a member of the registry; nil: all
	Lends         map[string][]string // by site: to whom it lends copies; nil: each site to all
	Stores        []string            // sites that run a store for other organizations, and the console
	Snapshots     []string            // sites whose claims have VolumeSnapshots, by a controller of the chart
}

// Federated are clusters with Weir.
type Federated struct {
	*kube.Clusters
	Etcd *stage.Etcd

	cfg     Config
	ca      *bed.Authorities
	release *kube.Release
	dir     string
	weir    string // path of the program
	say     func(format string, a ...any)
	sites   map[string]*site
}

type site struct {
	s3     *stage.S3
	values []string // flags of helm
}

// Install starts the registry and the stores, and installs the chart at all sites at once. It
// returns when all pods are ready.
func Install(ctx context.Context, c *kube.Clusters, cfg Config, say func(format string, a ...any)) (_ *Federated, err error) {
	if cfg.Members == nil {
		cfg.Members = c.Names()
	}
	f := &Federated{Clusters: c, cfg: cfg, dir: filepath.Join(c.Stage.Dir(), "weir"), say: say, sites: map[string]*site{}}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, err
	}
	if f.ca, err = bed.NewAuthorities(Federation, f.dir); err != nil {
		return nil, err
	}
	tls := map[string]stage.TLS{}
	var at []*stage.Site
	for _, name := range cfg.Members {
		s := c.Site(name)
		if tls[name], err = f.issue(name, pki.PartRegistry, "registry-"+name, s.Addr()); err != nil {
			return nil, err
		}
		at = append(at, s.Site)
	}
	if f.weir, err = c.Weir(ctx); err != nil {
		return nil, err
	}
	say("starting the registry: etcd and gatekeepers at %s", strings.Join(cfg.Members, ", "))
	if f.Etcd, err = c.Stage.StartEtcd(ctx, bed.Gatekeeper(Federation, f.weir), tls, at...); err != nil {
		return nil, err
	}
	var all []string
	for _, name := range c.Names() {
		o := f.Organization(name)
		if slices.Contains(all, o) {
			continue
		}
		if err := f.ca.NewAuthority(o); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	say("admitting organizations, each with its own authority: %s", strings.Join(all, ", "))
	if err := f.admit(ctx, all...); err != nil {
		return nil, err
	}
	say("making a release: image and chart")
	if f.release, err = c.Release(ctx, "", ""); err != nil {
		return nil, err
	}
	for _, name := range c.Names() {
		f.sites[name] = new(site)
	}
	say("installing the chart at %s", strings.Join(c.Names(), ", "))
	return f, f.each(func(name string) error { return f.install(ctx, name) })
}

// each calls fn for all sites at the same time.
func (f *Federated) each(fn func(name string) error) error {
	errs := make([]error, len(f.Names()))
	var wg sync.WaitGroup
	for i, name := range f.Names() {
		wg.Go(func() {
			if errs[i] = fn(name); errs[i] != nil {
				errs[i] = fmt.Errorf("site %s: %w", name, errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Organization is that of a site.
func (f *Federated) Organization(site string) string {
	if o := f.cfg.Organizations[site]; o != "" {
		return o
	}
	return "org-" + site
}

// issue makes a certificate of a site's part, and returns its files.
func (f *Federated) issue(site string, part pki.Part, who string, hosts ...string) (stage.TLS, error) {
	return f.ca.Issue(f.Organization(site), site, part, who, hosts...)
}

// trust is the file of what a site's organization trusts: its own authority, and the founding one.
func (f *Federated) trust(site string) string { return f.ca.Trust(f.Organization(site)) }

// file is one of a site's certificates and keys.
func (f *Federated) file(site, name string) string {
	return filepath.Join(f.dir, f.Organization(site), name)
}

// admit lets organizations' authorities vouch for them.
func (f *Federated) admit(ctx context.Context, organizations ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return f.ca.Admit(ctx, bed.At(f.Site(f.cfg.Members[0]).Site, f.weir), strings.Join(f.Etcd.Endpoints(), ","), organizations...)
}

func (f *Federated) install(ctx context.Context, name string) (err error) {
	s, mine := f.Site(name), f.sites[name]
	if mine.s3, err = f.Stage.StartS3(ctx, s.Site, accessKey, secretKey); err != nil {
		return err
	}
	dir := poolDir
	if s.HasZFS() {
		dir = plainDir
		f.say("site %s has ZFS: the chart makes a pool of three disks, and another one of a folder", name)
	}
	if out, err := s.HostNode().Output(ctx, "mkdir -p "+dir+" && chown 65532:65532 "+dir); err != nil {
		return fmt.Errorf("make the pool's folder: %w: %s", err, out)
	}
	if slices.Contains(f.cfg.Stores, name) {
		if err := f.lentVolume(ctx, name); err != nil {
			return err
		}
	}
	if slices.Contains(f.cfg.Snapshots, name) {
		if err := f.Site(name).SnapshotKinds(ctx); err != nil {
			return err
		}
	}
	if mine.values, err = f.values(name); err != nil {
		return err
	}
	if err := f.provide(ctx, name); err != nil {
		return err
	}
	return f.Upgrade(ctx, name)
}

// lentVolume makes the PersistentVolume for the claim of a site's store for others, which no
// provisioner makes here.
func (f *Federated) lentVolume(ctx context.Context, name string) error {
	s := f.Site(name)
	if out, err := s.HostNode().Output(ctx, "mkdir -p "+lentDir+"/store && chown -R 65532:65532 "+lentDir); err != nil {
		return fmt.Errorf("make the store's folder: %w: %s", err, out)
	}
	return s.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: weir-lent}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: %s, name: weir-lending}
  hostPath: {path: %s}
`, Namespace, lentDir))
}

// provide puts into the registry what the chart names, as one fills a mirror: see
// docs/kubernetes/images.md.
func (f *Federated) provide(ctx context.Context, name string) error {
	others, err := f.release.Others(ctx, f.Site(name), append([]string{"--namespace", Namespace}, f.sites[name].values...)...)
	if err != nil {
		return err
	}
	return f.Provide(ctx, others...)
}

// Renew makes a release of another version, which Upgrade then installs.
func (f *Federated) Renew(ctx context.Context, version string) (err error) {
	f.release, err = f.Release(ctx, version, "")
	return err
}

// Upgrade installs the chart, or upgrades what is installed, with further flags of helm.
func (f *Federated) Upgrade(ctx context.Context, name string, more ...string) error {
	s := f.Site(name)
	args := append([]string{"upgrade", "--install", "weir", f.release.Chart, "--namespace", Namespace, "--create-namespace",
		"--wait", "--timeout", "4m"}, f.sites[name].values...)
	if out, err := s.Helm(ctx, append(args, more...)...); err != nil {
		return fmt.Errorf("helm upgrade: %w: %s", err, out)
	}
	return nil
}

// Set upgrades a site with further flags of helm, which stay for later upgrades.
func (f *Federated) Set(ctx context.Context, name string, flags ...string) error {
	f.sites[name].values = append(f.sites[name].values, flags...)
	return f.Upgrade(ctx, name)
}

// values are the site's answers to the chart's questions.
func (f *Federated) values(name string) ([]string, error) {
	s := f.Site(name)
	var endpoints []string
	for _, other := range f.cfg.Members {
		endpoints = append(endpoints, fmt.Sprintf("%q", "https://"+f.Site(other).Addr()+":2379"))
	}
	host, guest := "{e2e.weir.dev/node: host}", "{e2e.weir.dev/node: guest}"
	if s.GuestNode() == nil {
		guest = host // it mounts nothing there
	}
	lends := f.cfg.Lends[name]
	if f.cfg.Lends == nil {
		lends = []string{`"*"`}
	}
	pool, pools := fmt.Sprintf("{size: 3Gi, hostPath: %s}", poolDir), "[]"
	if s.HasZFS() {
		pools = fmt.Sprintf("[{name: plain, size: 512Mi, labels: {tier: plain}, hostPath: %s}]", plainDir)
		pool = fmt.Sprintf("{size: 1536Mi, zfs: {dataset: tank/weir, devices: {data: [%s], log: [%s], cache: [%s]}}}",
			kube.Disks.Data, kube.Disks.Log, kube.Disks.Cache)
	}
	text := fmt.Sprintf(`federation: %s
organization: %s
site: {name: %s, region: region-%[3]s}
registry: {endpoints: [%s]}
store: {endpoint: %q, bucket: weir, accessKey: %s, secretKey: %s}
certificates: {mode: provided}
imageRegistry: weir.test
gateway:
  expose: HostNetwork
  address: %s
  nodeSelector: %s
  lease: 20s
  lends: [%s]
  pool: %s
  pools: %s
  resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 2Gi}}
operator: {nodeSelector: %[9]s, replicas: 1, resources: {requests: {cpu: 10m, memory: 32Mi}}}
csi:
  controller: {nodeSelector: %[9]s, resources: {requests: {cpu: 10m, memory: 32Mi}}}
  node: {nodeSelector: %[13]s}
  sidecarResources: {requests: {cpu: 10m, memory: 16Mi}}
`, Federation, f.Organization(name), name, strings.Join(endpoints, ", "), f.sites[name].s3.Endpoint(), accessKey, secretKey, s.Addr(), host,
		strings.Join(lends, ", "), pool, pools, guest)
	parts := map[string]pki.Part{"gateway": pki.PartGateway, "operator": pki.PartOperator, "csiController": pki.PartController,
		"csiNode": pki.PartNode}
	if slices.Contains(f.cfg.Stores, name) {
		text += fmt.Sprintf("lending: {enabled: true, address: %s, nodePort: %d, nodeSelector: %s}\n"+
			"console: {enabled: true, url: https://weir.example.org, nodeSelector: %[3]s}\n",
			s.Addr(), lentPort, host)
		parts["lending"] = pki.PartStore
	}
	if slices.Contains(f.cfg.Snapshots, name) {
		text += fmt.Sprintf("snapshots: {enabled: true, groups: {enabled: true}, controller: {enabled: true, replicas: 1, "+
			"nodeSelector: %s}}\n", host)
	}
	file := filepath.Join(f.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	flags := []string{"--values", file}
	for key, part := range parts {
		who := name + "-" + string(part)
		if part == pki.PartGateway {
			who = name + "-0"
		}
		tls, err := f.issue(name, part, who, s.Addr(), fmt.Sprintf("weir-%s-metrics.%s.svc", part, Namespace))
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--set-file", "certificates.provided."+key+".cert="+tls.Cert, "--set-file",
			"certificates.provided."+key+".key="+tls.Key)
	}
	return append(flags, "--set-file", "certificates.provided.ca="+f.trust(name)), nil
}

// Person runs the weir program at a site, as a person of an organization, which is that of another
// site perhaps.
func (f *Federated) Person(ctx context.Context, organization, at string, args ...string) (string, error) {
	who := "person-" + organization
	files := stage.TLS{CA: f.trust(organization), Cert: f.file(organization, who+".crt"), Key: f.file(organization, who+".key")}
	if _, err := os.Stat(files.Cert); err != nil {
		if files, err = f.issue(organization, pki.PartPerson, who); err != nil {
			return "", err
		}
	}
	cmd := f.Site(at).Command(ctx, f.weir, args...)
	cmd.Env = append(cmd.Environ(), "WEIR_REGISTRY="+strings.Join(f.Etcd.Endpoints(), ","), "WEIR_CA="+files.CA, "WEIR_CERT="+files.Cert,
		"WEIR_KEY="+files.Key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("weir %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// Lent lists the files of what others have in the store of a site, which is in the bucket of the
// site's S3.
func (f *Federated) Lent(name string) (files []string, err error) {
	err = filepath.WalkDir(f.sites[name].s3.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "/lent/") {
			files = append(files, path)
		}
		return nil // what is not there any more is not there
	})
	return files, err
}

// OnDisk reports whether the disks of a site have these bytes somewhere: what its gateway's pool,
// its S3 and its store for others write. What else is on the machine is left out: images, logs and
// the cluster's own.
func (f *Federated) OnDisk(name string, what []byte) (found bool, err error) {
	s := f.Site(name)
	own := filepath.Join(s.Dir(), name+"-host")
	for _, dir := range []string{f.sites[name].s3.Dir(), own + poolDir[len("/var"):], own + lentDir[len("/var"):]} {
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !found && d.Type().IsRegular() {
				found = has(path, what)
			}
			return nil // what is not there any more is not there
		}))
	}
	return found, err
}

// has reports whether a file has these bytes.
func has(file string, what []byte) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var tail []byte
	for buf := make([]byte, 1<<20); ; {
		n, err := f.Read(buf)
		if tail = append(tail, buf[:n]...); bytes.Contains(tail, what) {
			return true
		}
		if err != nil {
			return false
		}
		tail = append([]byte{}, tail[max(0, len(tail)-len(what)+1):]...)
	}
}

// Lose ends a site as a power cut would: cluster, store and registry member.
func (f *Federated) Lose(name string) {
	f.Site(name).Kill()
	f.sites[name].s3.Proc().Kill()
	if m := f.Etcd.Member(name); m != nil {
		m.Kill()
	}
}

// Return starts what Lose ended.
func (f *Federated) Return(ctx context.Context, name string) error {
	if m := f.Etcd.Member(name); m != nil {
		if err := m.Start(); err != nil {
			return err
		}
	}
	if err := f.sites[name].s3.Start(); err != nil {
		return err
	}
	return f.Site(name).Return(ctx)
}
