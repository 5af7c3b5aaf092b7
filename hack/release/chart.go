// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// packChart writes the chart with its version, and with the image of this release in its values.
func (r *release) packChart(ctx context.Context, digest string) error {
	if _, err := output(ctx, r.root, "hack/tools/build", "helm"); err != nil {
		return err
	}
	dir := filepath.Join(r.temp, "weir")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(r.root, "charts/weir"))); err != nil {
		return err
	}
	values := filepath.Join(dir, "values.yaml")
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	// Not the registry: the administrator's imageRegistry, a mirror say, would not replace it.
	keys := map[string]string{"tag": r.version, "digest": digest}
	pinned, err := pin(string(text), keys)
	if err != nil {
		return fmt.Errorf("charts/weir/values.yaml: %w", err)
	}
	if err := os.WriteFile(values, []byte(pinned), 0o644); err != nil {
		return err
	}
	// Helm gives the entries of its archive the times of the files.
	err = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(name, r.time, r.time)
	})
	if err != nil {
		return err
	}
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	helm := filepath.Join(r.tools, "helm")
	_, err = output(ctx, r.root, helm, "package", dir, "--version", r.version, "--app-version", r.version, "--destination", out)
	if err != nil {
		return err
	}
	_, err = os.Stat(r.file(".tgz"))
	return err
}

// imageBlock is the top-level key image of values.yaml, and what is below it.
var imageBlock = regexp.MustCompile(`(?m)^image:\n(?:(?: +.*)?\n)+`)

// pin sets keys of the chart's image to values that are not empty. It leaves all other text as it
// is: an administrator reads it.
func pin(values string, keys map[string]string) (string, error) {
	block := imageBlock.FindString(values)
	if block == "" {
		return "", fmt.Errorf("there is no key image")
	}
	pinned := block
	for key, value := range keys {
		line := regexp.MustCompile(`(?m)^  ` + key + `:.*$`)
		switch {
		case value == "":
		case line.MatchString(pinned):
			pinned = line.ReplaceAllString(pinned, "  "+key+": "+value)
		default:
			return "", fmt.Errorf("there is no key image.%s", key)
		}
	}
	return strings.Replace(values, block, pinned, 1), nil
}
