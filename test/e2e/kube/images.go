// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/weir-storage/weir/hack/image"
)

// ImageName is what manifests call an image of this package.
func ImageName(name string) string { return registryName + "/" + name + ":dev" }

// Provide makes images and puts them into the registry, all at the same time. A reference is
// weir.test/FOLDERS/NAME:TAG, with any folders and tag, and of these the image NAME:
//
//	pause                                       keeps a pod's namespaces alive
//	app                                         busybox, guesttool; waits, unless a command is set
//	csi-attacher csi-provisioner csi-resizer    sidecars
//	csi-snapshotter snapshot-controller         one more, and what it works with
//	etcd versitygw                              a registry of a federation, and a store
//
// Each image is made once per Clusters; its files stay where they are.
func (c *Clusters) Provide(ctx context.Context, references ...string) error {
	errs := make([]error, len(references))
	var wg sync.WaitGroup
	for i, ref := range references {
		wg.Go(func() {
			if errs[i] = c.provide(ctx, ref); errs[i] != nil {
				errs[i] = fmt.Errorf("provide image %s: %w", ref, errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Clusters) provide(ctx context.Context, reference string) error {
	name, _, _ := strings.Cut(path.Base(reference), ":")
	made, _ := c.made.LoadOrStore(name, sync.OnceValues(func() (v1.Image, error) { return c.makeImage(ctx, name) }))
	img, err := made.(func() (v1.Image, error))()
	if err != nil {
		return err
	}
	return c.images.push(ctx, reference, img)
}

// Tool is the path of guesttool, which is the same in guests; it is there when the image app is.
func (c *Clusters) Tool() string { return filepath.Join(c.Stage.Dir(), "images", "guesttool") }

// Weir compiles the weir program of this source tree and returns its path, which is the same in
// guests.
func (c *Clusters) Weir(ctx context.Context) (string, error) {
	files, err := c.build(ctx, "/bin/weir", "./cmd/weir")
	return files["/bin/weir"], err
}

// KMS compiles a KMS plugin for tests (package kms) and returns its path.
func (c *Clusters) KMS(ctx context.Context) (string, error) {
	files, err := c.build(ctx, "/bin/kms", "./test/e2e/kube/kms")
	return files["/bin/kms"], err
}

func (c *Clusters) makeImage(ctx context.Context, name string) (v1.Image, error) {
	s := image.Spec{Folders: []string{"/tmp"}, Entrypoint: []string{"/" + name}, Env: []string{"PATH=/bin:/"}}
	var err error
	switch name {
	case "pause":
		s.Files, err = c.build(ctx, "/pause", "./test/e2e/kube/pause")
	case "app":
		s.Files, err = c.build(ctx, "/bin/guesttool", "./test/e2e/guesttool")
		if err == nil {
			err = addBusybox(ctx, &s)
		}
		// The shell ends on SIGTERM. A bare sleep would not: the kernel ignores the signal for a
		// container's first process.
		s.Entrypoint = []string{"/bin/sh", "-c", "trap exit TERM; sleep infinity & wait"}
	case "etcd", "versitygw", "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller":
		var file string
		file, err = c.program(name)
		s.Files = map[string]string{"/" + name: file}
	default:
		err = errors.New("there is no such image: see Clusters.Provide")
	}
	if err != nil {
		return nil, err
	}
	return s.Build()
}

// build compiles a package of this source tree so that it needs nothing else.
func (c *Clusters) build(ctx context.Context, where, pkg string) (map[string]string, error) {
	out := filepath.Join(c.Stage.Dir(), "images", path.Base(where))
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, pkg)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.root, c.cfg.Progress, c.cfg.Progress
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build %s: %w", pkg, err)
	}
	return map[string]string{where: out}, nil
}

// addBusybox puts Debian's static busybox into /bin, under all its names.
func addBusybox(ctx context.Context, s *image.Spec) error {
	file, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w: run hack/install-deps", err)
	}
	names, err := exec.CommandContext(ctx, file, "--list").Output()
	if err != nil {
		return fmt.Errorf("list names of busybox: %w", err)
	}
	s.Files["/bin/busybox"] = file
	s.Links = map[string]string{}
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			s.Links["/bin/"+name] = "busybox"
		}
	}
	return nil
}

// Release is what hack/release made of this source tree for the machines of the stage.
type Release struct {
	Version string
	Chart   string // file of the packaged chart
	Image   string // the image's name in the registry, without tag
}

// Release makes a release and puts its image into a folder of the registry, by tag and digest:
// weir.test/FOLDER/weir, or weir.test/weir for an empty folder. An empty version is the commit's.
func (c *Clusters) Release(ctx context.Context, version, folder string) (*Release, error) {
	dir := filepath.Join(c.Stage.Dir(), "release", version)
	// A folder that another call left has a release too, of a commit that may be older.
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./hack/release", "-o", dir, "-only", "image,chart",
		"-platforms", "linux/amd64", "-version", version)
	cmd.Dir, cmd.Stderr = c.root, c.cfg.Progress
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "weir-*.oci.tar"))
	if err != nil || len(archives) != 1 {
		return nil, errors.Join(fmt.Errorf("make release: folder %s has the image archives %q: it must be one", dir, archives), err)
	}
	a, err := image.OpenArchive(archives[0]) // until this process ends
	if err != nil {
		return nil, err
	}
	name := path.Join(folder, "weir")
	r := &Release{Version: a.Tag, Image: path.Join(registryName, name), Chart: filepath.Join(dir, "weir-"+a.Tag+".tgz")}
	if err := c.images.pushArchive(ctx, name, a); err != nil {
		return nil, fmt.Errorf("push %s: %w", archives[0], err)
	}
	return r, nil
}

// imageLine is a container's image in what helm renders.
var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^\s"]+)`)

// Others are the images that the chart names besides Weir's, with these flags of helm. It is an
// error when there are none, since a chart always has sidecars.
func (r *Release) Others(ctx context.Context, s *Site, flags ...string) ([]string, error) {
	text, err := s.Helm(ctx, append([]string{"template", "weir", r.Chart}, flags...)...)
	if err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", err, text)
	}
	var others []string
	for _, m := range imageLine.FindAllStringSubmatch(text, -1) {
		own := strings.HasPrefix(m[1], r.Image+":") || strings.HasPrefix(m[1], r.Image+"@")
		if !own && !slices.Contains(others, m[1]) {
			others = append(others, m[1])
		}
	}
	if len(others) < 3 {
		return nil, fmt.Errorf("the chart names the images %q besides Weir's: the search misses sidecars", others)
	}
	return others, nil
}
