// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-storage/weir/pki"
)

// scratch is a folder of this process.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "charts"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // left behind, it would do no harm
	os.Exit(code)
}

var build = sync.OnceValues(func() (string, error) {
	weir := filepath.Join(scratch, "weir")
	// As `make build` compiles it, so that only the linker runs.
	cmd := exec.Command("go", "build", "-trimpath", "-o", weir, "../cmd/weir")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	return weir, told(cmd)
})

// program is weir, as it is in the tree.
func program(t *testing.T) string {
	t.Helper()
	weir, err := build()
	if err != nil {
		t.Fatalf("build weir: %v", err)
	}
	return weir
}

type failure struct {
	error
	said []byte
}

func (f *failure) Error() string { return f.error.Error() + "\n" + string(f.said) }

func told(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return &failure{err, out}
	}
	return nil
}

var handOver = sync.OnceValues(func() (string, error) {
	weir, err := build()
	if err != nil {
		return "", err
	}
	ca, out := filepath.Join(scratch, "ca"), filepath.Join(scratch, "certificates.yaml")
	if err := told(exec.Command(weir, "pki", "init", "--dir", ca, "--federation", "demo")); err != nil {
		return "", err
	}
	return out, told(exec.Command(weir, "pki", "bundle", "--dir", ca, "--organization", "Universiteit Utrecht", "--site", "utr", "--host",
		"203.0.113.20", "--store-host", "203.0.113.21", "--out", out))
})

// certificates is the file for site utr that `weir pki bundle` writes, with the commands of
// docs/kubernetes/federation.md.
func certificates(t *testing.T) string {
	t.Helper()
	file, err := handOver()
	if err != nil {
		t.Fatalf("issue the certificates of a site: %v", err)
	}
	return file
}

// The values file of `weir pki bundle` makes one Secret for each process, with what that process
// needs. So do the same texts when each is set with a flag of its own.
func TestBundle(t *testing.T) {
	file := certificates(t)
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v; want 0600", i.Mode(), err)
	}
	site := []string{"-f", "weir/ci/join-values.yaml", "--set", "lending.enabled=true,lending.address=203.0.113.21"}
	secrets := func(args ...string) map[string]map[string][]byte {
		t.Helper()
		all := map[string]map[string][]byte{}
		for _, s := range of[corev1.Secret](render(t, append(site, args...)...)) {
			all[s.Name] = s.Data
		}
		return all
	}
	got := secrets("-f", file)
	for secret, of := range map[string]pki.Identity{"weir-gateway-tls": {Gateway: "utr-0", Part: pki.PartGateway},
		"weir-operator-tls":       {Gateway: "utr-operator", Part: pki.PartOperator},
		"weir-csi-controller-tls": {Gateway: "utr-csi-controller", Part: pki.PartController},
		"weir-csi-node-tls":       {Gateway: "utr-csi-node", Part: pki.PartNode},
		"weir-lending-tls":        {Gateway: "utr-store", Part: pki.PartStore}} {
		s := got[secret]
		c, err := pki.Load(s["ca.crt"], pki.Pair{Cert: s["tls.crt"], Key: s["tls.key"]}, time.Now)
		want := pki.Identity{Federation: "demo", Organization: "Universiteit Utrecht", Site: "utr", Gateway: of.Gateway, Part: of.Part}
		if err != nil || c.Identity() != want {
			t.Errorf("Secret %s: %v; want the certificate of %v", secret, err, want)
		}
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Certificates struct {
			Provided map[string]any `json:"provided"`
		} `json:"certificates"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	args := []string{"--set", "certificates.mode=provided"}
	dir := t.TempDir()
	give := func(name string, pem any) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(pem.(string)), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--set-file", "certificates.provided."+name+"="+path)
	}
	give("ca", values.Certificates.Provided["ca"])
	for _, part := range []string{"gateway", "operator", "csiController", "csiNode", "lending"} {
		pair := values.Certificates.Provided[part].(map[string]any)
		give(part+".cert", pair["cert"])
		give(part+".key", pair["key"])
	}
	if one := secrets(args...); !reflect.DeepEqual(one, got) {
		t.Error("the same texts given one by one make other Secrets")
	}
	for _, s := range got {
		if !bytes.Contains(s["ca.crt"], []byte("BEGIN CERTIFICATE")) || bytes.Contains(s["ca.crt"], []byte("PRIVATE KEY")) {
			t.Error("ca.crt has no certificate, or a key")
		}
	}
}
