// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/weir-storage/weir/cmd/weir/internal/cli"
)

const (
	apiPause = time.Second     // between attempts to reach an API server
	apiTime  = 5 * time.Second // of one attempt
)

// AwaitCluster waits until the API server answers, and says how to reach it. A process that ended
// instead would be restarted with growing delays, and would stay away after the server is back.
// Meanwhile the process answers probes: it is alive and not ready.
func (o *Options) AwaitCluster(ctx context.Context, sh *cli.Shell, log *slog.Logger) (*rest.Config, error) {
	cfg, err := Cluster(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	limited := rest.CopyConfig(cfg)
	limited.Timeout = apiTime
	c, err := discovery.NewDiscoveryClientForConfig(limited)
	if err != nil {
		return nil, err
	}
	if _, err = c.ServerVersion(); answers(err) {
		return cfg, nil
	}
	health, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		if o.Health == "" {
			served <- nil
			return
		}
		served <- ServeHealth(health, o.Health, func() error { return errors.New("waiting for the API server") })
	}()
	logged := ""
	for !answers(err) {
		if now := err.Error(); now != logged { // a new error may need another remedy
			logged = now
			log.Warn("the API server does not answer; waiting for it", "server", cfg.Host, "error", err)
		}
		if !sh.Pause(ctx, apiPause) {
			break
		}
		_, err = c.ServerVersion()
	}
	end()
	if err := errors.Join(ctx.Err(), <-served); err != nil {
		return nil, err
	}
	log.Info("the API server answers", "server", cfg.Host)
	return cfg, nil
}

// Answers returns a function that asks the API server whether it works: nil says so, and also that
// it refuses to tell. The function may be called at any time, and takes at most apiTime.
func Answers(cluster *rest.Config) (func(context.Context) error, error) {
	limited := rest.CopyConfig(cluster)
	limited.Timeout = apiTime
	c, err := discovery.NewDiscoveryClientForConfig(limited)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := c.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() // it is not ready without its etcd
		if answers(err) {
			return nil
		}
		return err
	}, nil
}

// answers reports whether err is an answer of an API server that runs, even a refusal.
func answers(err error) bool {
	s := apierrors.APIStatus(nil)
	return err == nil || errors.As(err, &s) && s.Status().Code != 0 && s.Status().Code < 500 && s.Status().Code != 429
}
