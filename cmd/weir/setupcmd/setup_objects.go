// SPDX-License-Identifier: Apache-2.0

package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

// Attempts to apply an object while the API server does not serve its kind yet, and the time
// between.
const (
	applyPause = 2 * time.Second
	applyTries = 30
)

// apply applies the site's own objects. Their kinds come with the same release of the chart, so the
// API server may serve them a little later.
func (s *setup) apply(ctx context.Context) error {
	if s.objects == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.objects, "*.yaml"))
	if err != nil || len(files) == 0 {
		return cli.Usage("setup: --objects %q: there is no .yaml file in it", s.objects)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = s.applyAll(ctx, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *setup) applyAll(ctx context.Context, r io.Reader) error {
	d := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		o := new(unstructured.Unstructured)
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		for try := 1; ; try++ {
			err := s.client.Apply(ctx, kube.ApplyConfigurationFromUnstructured(o.DeepCopy()),
				kube.FieldOwner("weir-setup"), kube.ForceOwnership)
			if err == nil {
				s.tell("%s %s is applied\n", o.GetKind(), o.GetName())
				break
			}
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || try == applyTries {
				return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			if !s.pause(ctx, applyPause) {
				return ctx.Err()
			}
		}
	}
}
