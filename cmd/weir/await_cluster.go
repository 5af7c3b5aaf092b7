// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// apiPause is between attempts to reach an API server that does not answer.
const apiPause = time.Second

// awaitCluster is cluster, once the API server answers. A process that ended instead would be restarted later and later, and would be away long after
// the API server is back. Probes are answered meanwhile: it lives, and is not ready.
func (s *process) awaitCluster(ctx context.Context, log *slog.Logger) (*rest.Config, error) {
	cfg, err := s.cluster()
	if err != nil {
		return nil, err
	}
	limited := rest.CopyConfig(cfg)
	limited.Timeout = farTime
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
		if s.health == "" {
			served <- nil
			return
		}
		served <- serveHealth(health, s.health, func() error { return errors.New("waiting for the API server") })
	}()
	said := ""
	for !answers(err) {
		if now := err.Error(); now != said { // another one may tell what to mend
			said = now
			log.Warn("the API server does not answer; waiting for it", "server", cfg.Host, "error", err)
		}
		if !pause(ctx, apiPause) {
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

// answers tells whether the API server is there, if only to refuse.
func answers(err error) bool {
	s := apierrors.APIStatus(nil)
	return err == nil || errors.As(err, &s) && s.Status().Code != 0 && s.Status().Code < 500 && s.Status().Code != 429
}
