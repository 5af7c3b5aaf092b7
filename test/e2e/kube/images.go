// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weir-storage/weir/test/e2e/image"
)

// ImageName is what manifests call an image of this package; pull policy Never or IfNotPresent.
func ImageName(name string) string { return "weir.test/" + name + ":dev" }

// Rebuilt makes the image weir anew, with a version of its own, under a tag that no node has yet, and returns the path of its archive.
func (c *Clusters) Rebuilt(ctx context.Context, tag string) (string, error) {
	dir := filepath.Join(c.Stage.Dir(), "images", tag)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files, err := c.build(ctx, dir, "/weir", "./cmd/weir", "-ldflags=-X main.version="+tag)
	if err != nil {
		return "", fmt.Errorf("make image weir:%s: %w", tag, err)
	}
	i := image.Image{Name: "weir.test/weir:" + tag, Folders: []string{"/tmp"}, Entrypoint: []string{"/weir"}, Env: []string{"PATH=/bin:/"}, Files: files}
	tar := filepath.Join(dir, "weir.tar")
	return tar, i.WriteFile(tar)
}

// Image makes an image and returns the path of its archive, for LoadImages. There are
//
//	pause                                       what holds a pod together; on every node
//	app                                         busybox and guesttool; waits, unless it is told a command; on every node
//	weir                                        the weir program of this source tree, at /weir
//	csi-attacher csi-provisioner csi-resizer    sidecars
//	etcd versitygw                              a registry and a store
//
// Each is made once per Clusters.
func (c *Clusters) Image(ctx context.Context, name string) (string, error) {
	made, _ := c.images.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		tar, err := c.makeImage(ctx, name)
		if err != nil {
			return "", fmt.Errorf("make image %s: %w", name, err)
		}
		return tar, nil
	}))
	return made.(func() (string, error))()
}

// Tool is the path of guesttool, which is the same in guests; it is there when the image app is.
func (c *Clusters) Tool() string { return filepath.Join(c.Stage.Dir(), "images", "guesttool") }

func (c *Clusters) makeImage(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(c.Stage.Dir(), "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	i := image.Image{Name: ImageName(name), Folders: []string{"/tmp"}, Entrypoint: []string{"/" + name}, Env: []string{"PATH=/bin:/"}}
	var err error
	switch name {
	case "pause":
		i.Files, err = c.build(ctx, dir, "/pause", "./test/e2e/kube/pause")
	case "weir":
		i.Files, err = c.build(ctx, dir, "/weir", "./cmd/weir")
	case "app":
		i.Files, err = c.build(ctx, dir, "/bin/guesttool", "./test/e2e/guesttool")
		if err == nil {
			err = addBusybox(ctx, &i)
		}
		// A shell that is told to end, does; as the first process of a container, a mere sleep would not.
		i.Entrypoint = []string{"/bin/sh", "-c", "trap exit TERM; sleep infinity & wait"}
	case "etcd", "versitygw", "csi-attacher", "csi-provisioner", "csi-resizer":
		var path string
		path, err = c.program(name)
		i.Files = map[string]string{"/" + name: path}
	default:
		err = errors.New("there is no such image: see Clusters.Image")
	}
	if err != nil {
		return "", err
	}
	tar := filepath.Join(dir, name+".tar")
	return tar, i.WriteFile(tar)
}

// build compiles a package of this source tree so that it needs nothing else.
func (c *Clusters) build(ctx context.Context, dir, path, pkg string, flags ...string) (map[string]string, error) {
	out := filepath.Join(dir, filepath.Base(path))
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath", "-o", out}, flags...), pkg)...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.root, c.cfg.Progress, c.cfg.Progress
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build %s: %w", pkg, err)
	}
	return map[string]string{path: out}, nil
}

// addBusybox puts Debian's static busybox into /bin, under all its names.
func addBusybox(ctx context.Context, i *image.Image) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w: run hack/install-deps", err)
	}
	names, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return fmt.Errorf("list names of busybox: %w", err)
	}
	i.Files["/bin/busybox"] = path
	i.Links = map[string]string{}
	for _, name := range strings.Fields(string(names)) {
		if name != "busybox" {
			i.Links["/bin/"+name] = "busybox"
		}
	}
	return nil
}

// LoadImages makes images known to all nodes of the site; Clusters.Image makes their archives.
func (s *Site) LoadImages(ctx context.Context, tars ...string) error {
	for _, n := range s.Nodes() {
		if err := n.LoadImages(ctx, tars...); err != nil {
			return err
		}
	}
	return nil
}
