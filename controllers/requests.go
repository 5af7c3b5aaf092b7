// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unlimited is the manager's way to the API server without client-go's own limit, which is 5 requests a second of each kind unless somebody says
// otherwise: a site that joins with 10 000 volumes would take hours to show them, and a few hundred whose lag changes would use it all. How much the operator
// may ask at a time is for the API server to say (priority and fairness), and Options.Workers bounds it here.
func unlimited(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	return cfg
}

// clientsOf are like the manager's: one reads from the cache, the other asks the API server itself.
func clientsOf(mgr ctrl.Manager) (cached client.Client, direct client.Reader, err error) {
	cfg, o := unlimited(mgr.GetConfig()), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	if direct, err = client.New(cfg, o); err != nil {
		return nil, nil, err
	}
	o.Cache = &client.CacheOptions{Reader: mgr.GetCache()}
	cached, err = client.New(cfg, o)
	return cached, direct, err
}

// recorderOf is like the manager's recorder of events. Behind a limit each event would wait in a goroutine of its own.
func recorderOf(mgr ctrl.Manager) (events.EventRecorder, error) {
	c, err := eventsv1.NewForConfigAndClient(unlimited(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: c})
	err = mgr.Add(everywhere{func(ctx context.Context) error {
		defer b.Shutdown()
		if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}})
	return b.NewRecorder(mgr.GetScheme(), "weir-operator"), err
}
