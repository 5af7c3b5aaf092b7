// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// ControllerConfig is what a controller server needs.
type ControllerConfig struct {
	// Client reads from the API server itself, not from a cache: rule 2 is decided by what it returns. Its scheme has core/v1, storage/v1 and v1alpha1. It gets,
	// lists, watches, creates, patches and deletes GeoVolumeContents; lists Sites, PersistentVolumes and VolumeAttachments; gets VolumePolicies and Nodes.
	Client      client.WithWatch
	Attachments Attachments
	Federation  string
	Site        string
	// Cluster is the UID of the namespace kube-system.
	Cluster string
	// DefaultSize is a volume's size when nobody says one; 0: 1 GiB.
	DefaultSize int64
	// WaitLimit is how long a call waits for the operator; 0: 40 s. It should be less than the sidecars' --timeout, so that they hear why it took so long.
	WaitLimit time.Duration
}

// Controller is the controller server.
type Controller struct {
	csi.UnimplementedControllerServer
	cfg     ControllerConfig
	cluster uuid.UUID
	calls   inflight
}

// NewController checks the configuration. The server may be used by many calls at a time; of a cluster, one instance at a time.
func NewController(cfg ControllerConfig) (*Controller, error) {
	id, err := uuid.Parse(cfg.Cluster)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cluster is %q: write the UID of the namespace kube-system", cfg.Cluster)
	case cfg.Federation == "":
		return nil, fmt.Errorf("federation is missing: write its name, as in the Site object of this cluster")
	case cfg.Site == "":
		return nil, fmt.Errorf("site is missing: write the name of this cluster's Site")
	case cfg.Client == nil || cfg.Attachments == nil:
		return nil, fmt.Errorf("the controller needs a client and attachments")
	}
	if cfg.DefaultSize == 0 {
		cfg.DefaultSize = 1 << 30
	}
	if cfg.WaitLimit == 0 {
		cfg.WaitLimit = 40 * time.Second
	}
	return &Controller{cfg: cfg, cluster: id}, nil
}

var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	controllerVolumeCondition,
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := new(csi.ControllerGetCapabilitiesResponse)
	for _, t := range controllerCapabilities {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// content finds the volume of a handle: NOT_FOUND when there is none.
func (c *Controller) content(ctx context.Context, handle string) (*v1alpha1.GeoVolumeContent, error) {
	if handle == "" {
		return nil, missing("volume_id")
	}
	federation, id, ok := parseHandle(handle)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %s is not there: a volume's handle is FEDERATION/UUID", handle)
	}
	if federation != c.cfg.Federation {
		return nil, status.Errorf(codes.NotFound, "volume %s is of federation %s: this site is in %s", handle, federation, c.cfg.Federation)
	}
	v := new(v1alpha1.GeoVolumeContent)
	err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: id}, v)
	if apierrors.IsNotFound(err) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not there: this cluster has no GeoVolumeContent %s", handle, id)
	}
	if err != nil {
		return nil, fromAPI(err, "get GeoVolumeContent %s", id)
	}
	return v, nil
}

// volume describes a Content.
func (c *Controller) volume(v *v1alpha1.GeoVolumeContent) *csi.Volume {
	return &csi.Volume{
		VolumeId:      handleOf(c.cfg.Federation, v.Name),
		CapacityBytes: v.Spec.Size.Value(),
		// Every node of this site, and no other site's: they are other clusters' nodes. Where copies are does not matter.
		AccessibleTopology: []*csi.Topology{topology(c.cfg.Site)},
	}
}

func topology(site string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{v1alpha1.TopologyKey: site}}
}

// fromAPI makes a status of an error of the API server.
func fromAPI(err error, format string, a ...any) error {
	what := fmt.Sprintf(format, a...)
	switch {
	case apierrors.IsConflict(err):
		return status.Errorf(codes.Aborted, "%s: somebody else changed it at the same time: ask again: %v", what, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return status.Errorf(codes.InvalidArgument, "%s: %v", what, err)
	case apierrors.IsForbidden(err):
		return status.Errorf(codes.Internal, "%s: the controller lacks a right in this cluster: %v", what, err)
	}
	return fromPort(err, "%s", what)
}
