// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// RegistrationSocket is where a kubelet looks for the driver.
const RegistrationSocket = "/var/lib/kubelet/plugins_registry/" + v1alpha1.Driver + "-reg.sock"

// registrar answers the kubelet, which asks when the socket appears and when the kubelet starts.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
	once     sync.Once
	failed   chan error
}

// GetInfo implements the kubelet's plugin registration.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:     registration.CSIPlugin,
		Name:     v1alpha1.Driver,
		Endpoint: r.endpoint,
		// The kubelet accepts major version 1 of CSI.
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements the kubelet's plugin registration.
func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		r.once.Do(func() {
			r.failed <- fmt.Errorf("the kubelet refuses to register %s: %s", v1alpha1.Driver, s.GetError())
		})
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// ServeRegistration registers the driver with the kubelet, at cfg.Endpoint (RegistrationSocket),
// until ctx is done. endpoint is the path of the node server's socket as the kubelet sees it; that
// server must be up. ServeRegistration fails when the kubelet refuses the driver. The process
// should end then and start again: the kubelet asks again when a new socket appears.
func ServeRegistration(ctx context.Context, cfg ServerConfig, endpoint string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &registrar{endpoint: endpoint, failed: make(chan error, 1)}
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, cfg, func(s grpc.ServiceRegistrar) { registration.RegisterRegistrationServer(s, r) })
	}()
	select {
	case err := <-served:
		return err
	case err := <-r.failed:
		cancel()
		return errors.Join(err, <-served)
	}
}
