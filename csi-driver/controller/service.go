// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// Config is what a controller server needs.
type Config struct {
	// Client reads from the API server itself, not from a cache: what it returns decides who may
	// use a volume (csi-2). Its scheme has core/v1, storage/v1 and v1alpha1. It needs these rights:
	//
	//	GeoVolumeContents                     get, list, watch, create, patch, delete
	//	GeoVolumeSnapshots                    get, list, watch, create, delete
	//	Sites                                 list
	//	PersistentVolumes, VolumeAttachments  get, list
	//	VolumePolicies, Nodes                 get
	Client client.WithWatch
	// Seen is a cache of PersistentVolumes and VolumeAttachments, or nil. What it finds is read
	// again from Client before it counts. Without it, each attachment lists all of them. It needs
	// the right to watch both.
	Seen        client.Reader
	Attachments Attachments
	Federation  string
	Site        string
	// Cluster is the UID of the namespace kube-system.
	Cluster string
	// DefaultSize is the size in bytes of a volume for which nobody asks one; 0: 1 GiB.
	DefaultSize int64
	// WaitLimit is how long a call waits for the operator; 0: 40 s. It should be less than the
	// sidecars' --timeout, so that they hear why it took so long.
	WaitLimit time.Duration
}

// service does what the calls ask for, without a lock: of calls on one volume, Server lets in one
// at a time. It keeps no state that matters for longer than a call.
type service struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	cfg     Config
	cluster uuid.UUID
	groups  *sync.Map // the volumes of which alone has let in a call
}

func newService(cfg Config) (service, error) {
	id, err := uuid.Parse(cfg.Cluster)
	switch {
	case err != nil:
		return service{}, fmt.Errorf("cluster is %q: write the UID of the namespace kube-system", cfg.Cluster)
	case cfg.Federation == "":
		return service{}, fmt.Errorf("federation is missing: write its name, as in the Site object of this cluster")
	case cfg.Site == "":
		return service{}, fmt.Errorf("site is missing: write the name of this cluster's Site")
	case cfg.Client == nil || cfg.Attachments == nil:
		return service{}, fmt.Errorf("the controller needs a client and attachments")
	}
	if cfg.DefaultSize == 0 {
		cfg.DefaultSize = 1 << 30
	}
	if cfg.WaitLimit == 0 {
		cfg.WaitLimit = 40 * time.Second
	}
	return service{cfg: cfg, cluster: id, groups: new(sync.Map)}, nil
}

var capabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	health.ControllerConditionCapability,
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (s *service) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := new(csi.ControllerGetCapabilitiesResponse)
	for _, t := range capabilities {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// content finds the volume of a handle. The error is NOT_FOUND when there is none.
func (s *service) content(ctx context.Context, handle string) (*v1alpha1.GeoVolumeContent, error) {
	if handle == "" {
		return nil, rpc.Missing("volume_id")
	}
	id, err := rpc.VolumeID(handle, s.cfg.Federation)
	if err != nil {
		return nil, err
	}
	v := new(v1alpha1.GeoVolumeContent)
	err = s.cfg.Client.Get(ctx, client.ObjectKey{Name: id}, v)
	if apierrors.IsNotFound(err) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not there: this cluster has no GeoVolumeContent %s", handle, id)
	}
	if err != nil {
		return nil, fromAPI(err, "get GeoVolumeContent %s", id)
	}
	return v, nil
}

// volume describes a Content.
func (s *service) volume(v *v1alpha1.GeoVolumeContent) *csi.Volume {
	return &csi.Volume{
		VolumeId:      v1alpha1.VolumeHandle(s.cfg.Federation, v.Name),
		CapacityBytes: v.Spec.Size.Value(),
		// Every node of this site reaches it, wherever its copies are. The nodes of other sites are
		// other clusters' nodes.
		AccessibleTopology: []*csi.Topology{rpc.Topology(s.cfg.Site)},
	}
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
	return rpc.FromPort(err, "%s", what)
}
