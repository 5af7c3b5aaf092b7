// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mode is an access mode of CSI.
type mode = csi.VolumeCapability_AccessMode_Mode

// oneNode lists the modes that allow one node.
var oneNode = []mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
}

// readers lists the modes that only read.
var readers = []mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
}

// manyNodes lists the modes that allow many nodes. MULTI_NODE_SINGLE_WRITER is not among them:
// nothing would keep a second node from writing.
var manyNodes = []mode{
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// ModeOf returns the access mode of a capability.
func ModeOf(c *csi.VolumeCapability) mode { return c.GetAccessMode().GetMode() }

// OneNode reports whether a capability allows one node only.
func OneNode(c *csi.VolumeCapability) bool { return slices.Contains(oneNode, ModeOf(c)) }

// OnlyReads reports whether a capability allows no writes.
func OnlyReads(c *csi.VolumeCapability) bool { return slices.Contains(readers, ModeOf(c)) }

// CheckCapability refuses a use that volumes do not support: a block device, another file system,
// or a mount option that would break a promise. field names the capability in the error, which is
// INVALID_ARGUMENT.
func CheckCapability(field string, c *csi.VolumeCapability) error {
	switch {
	case c == nil:
		return Missing(field)
	case c.GetBlock() != nil:
		return status.Errorf(codes.InvalidArgument,
			"%s asks for a block device: a volume is a file system; write volumeMode: Filesystem", field)
	case c.GetMount() == nil:
		return status.Errorf(codes.InvalidArgument, "%s has no access type: it must have mount", field)
	case !OneNode(c) && !slices.Contains(manyNodes, ModeOf(c)):
		return Invalid(field+".access_mode", ModeOf(c), "use SINGLE_NODE_..., MULTI_NODE_READER_ONLY or MULTI_NODE_MULTI_WRITER")
	}
	if t := c.GetMount().GetFsType(); t != "" && t != "nfs" && t != "nfs4" {
		return Invalid(field+".fs_type", t, "a volume has its own file system; leave fsType out")
	}
	if g := c.GetMount().GetVolumeMountGroup(); g != "" && !digits.MatchString(g) {
		return Invalid(field+".volume_mount_group", g, "it must be a group's number")
	}
	_, err := ParseMountFlags(c.GetMount().GetMountFlags())
	return err
}

// CheckCapabilities checks each capability of the field volume_capabilities, which must have one.
func CheckCapabilities(cs []*csi.VolumeCapability) error {
	if len(cs) == 0 {
		return Missing("volume_capabilities")
	}
	for _, c := range cs {
		if err := CheckCapability("volume_capabilities", c); err != nil {
			return err
		}
	}
	return nil
}
